"""Links of written pages: where they lead, and which lead to nothing."""

import html.parser


class Page(html.parser.HTMLParser):
    """What a page refers to, and the ids that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.ids += [found["id"]] if "id" in found else []


def broken_links(folder):
    """Links of all pages that lead to nothing: no file, or no such id in it."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            name, _, fragment = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if link.startswith("data:"):
                continue
            there = target.is_file() and (
                not fragment or "=" in fragment or fragment in pages[target].ids
            )
            if not there:
                found.append(f"{path.name}: {link}")
    return found
