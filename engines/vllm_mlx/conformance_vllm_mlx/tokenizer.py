"""What ``EngineCore`` needs of a tokenizer: texts are made of its tokens, and never asked for."""


class WordTokenizer:
    """A token's text is its number. No token ends a request."""

    eos_token_id = None
    clean_up_tokenization_spaces = False

    def encode(self, text):
        """The numbers of the words."""
        return [int(word) for word in text.split()]

    def decode(self, tokens, **_):
        """Words."""
        return "".join(f"{token} " for token in tokens)


class EndingTokenizer(WordTokenizer):
    """Some tokens end every request."""

    def __init__(self, ends):
        self.eos_token_ids = set(ends)
