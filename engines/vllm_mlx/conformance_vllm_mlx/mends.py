"""Repairs of known defects of vllm-mlx: with them, a case that a defect spoils must be right."""

from contextlib import contextmanager
from unittest.mock import patch

import mlx.core as mx
from vllm_mlx.paged_cache import PagedCacheManager
from vllm_mlx.scheduler import Scheduler

from conformance.core.mends import mend
from conformance.plugins.mlx_lm import library


@mend("vllm-mlx-blocks-without-parents")
@contextmanager
def blocks_found_by_all_before_them(hits):
    """A block is found by the whole beginning of a prompt, which the prefix index compares."""
    register = PagedCacheManager.register_block_hash

    def registered(manager, block, tokens):
        hits.hit()
        register(manager, block, tokens)
        manager.hash_to_block.pop(block.hash_value, None)

    with patch.object(PagedCacheManager, "register_block_hash", registered):
        yield


@mend("vllm-mlx-last-token-twice")
@contextmanager
def whole_prompts_computed_anew(hits):
    """A cache that covers the whole prompt is dropped, as it is for other hits."""
    add = Scheduler.add_request

    def added(scheduler, request):
        add(scheduler, request)
        if request.cache_hit_type == "hit" and not request.remaining_tokens:
            hits.hit()
            request.cache_hit_type = "exact"

    with patch.object(Scheduler, "add_request", added):
        yield


@mend("vllm-mlx-penalty-forgets-prefix")
@contextmanager
def penalties_count_prefixes(hits):
    """Processors of a request that goes on from a kept prefix see the tokens of that prefix."""
    create = Scheduler._create_batch_generator

    def created(scheduler, params):
        generator = create(scheduler, params)
        insert = generator.insert

        def inserted(prompts, **options):
            known = _known(scheduler, prompts, options)
            hits.hit_if(any(map(len, known)))
            return insert(prompts, all_tokens=known, **options)

        generator.insert = inserted
        return generator

    with patch.object(Scheduler, "_create_batch_generator", created):
        yield


def _known(scheduler, prompts, options):
    """For each prompt the tokens that its cache stands for: those of the request that is added."""
    if not options.get("caches"):
        return [[] for _ in prompts]
    (rest,) = prompts
    added = [r for r in scheduler.requests.values() if r.prompt_cache is options["caches"][0]]
    return [list(r.prompt_token_ids[: len(r.prompt_token_ids) - len(rest)]) for r in added]


@mend("mlx-lm-0-31-3-processors-see-a-tail", single_stream=True)
@contextmanager
def processors_see_prompts(hits):
    """Processors of the single stream see all of the prompt, not only its last token."""
    generate = library.generate_step

    def generated(prompt, model, **options):
        before = mx.array(prompt)[:-1]

        def seeing(processor):
            def called(tokens, logits):
                hits.hit_if(before.size)
                return processor(mx.concatenate([before.astype(tokens.dtype), tokens]), logits)

            return called

        given = options.pop("logits_processors", None) or []
        return generate(prompt, model, logits_processors=[*map(seeing, given)], **options)

    with patch.object(library, "generate_step", generated):
        yield


MENDS = (
    processors_see_prompts,
    blocks_found_by_all_before_them,
    whole_prompts_computed_anew,
    penalties_count_prefixes,
)
