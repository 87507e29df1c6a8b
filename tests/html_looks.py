"""The look of a page in the browser: texts without enough contrast, or out of sight."""

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const shown = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const part = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.map(part);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = shown(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || element.closest("[hidden], .faint, noscript, script, option, .skip")) continue;
    const pair = [light(shown(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName} ${element.className} ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""

UNREADABLE = """() => {
  // What scrolls within itself, and can be reached by keyboard.
  const scrolling = "#scroller, .wide[tabindex]";
  const apart = "[hidden], noscript, script, option, .skip, details:not([open]) > :not(summary)";
  const name = (e) =>
    `${e.tagName} ${e.getAttribute("class") ?? ""} ${e.textContent.trim().slice(0, 30)}`;
  const found = new Set();
  const lines = (element) => {
    const range = document.createRange();
    return [...element.childNodes].filter((n) => n.nodeType === 3 && n.textContent.trim())
      .flatMap((node) => (range.selectNodeContents(node), [...range.getClientRects()]))
      .filter((box) => box.width > 1 && box.right > 0);
  };
  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const texts = [];
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(`${apart}, ${scrolling}`) || !element.checkVisibility()) continue;
    const box = element.getBoundingClientRect();
    if (box.right > innerWidth + 0.5) found.add(`outside: ${name(element)}`);
    const over = element.scrollWidth > element.clientWidth + 1 && !element.matches("input, select");
    const cut = getComputedStyle(element).overflowX !== "visible";
    if (over && cut) found.add(`clipped: ${name(element)}`);
    for (const line of lines(element)) texts.push([element, line]);
  }
  texts.forEach(([one, a], index) => {
    for (const [other, b] of texts.slice(index + 1))
      if (one !== other && meet(a, b)) found.add(`overlaps: ${name(one)} | ${name(other)}`);
  });
  for (const [element] of texts) {
    element.scrollIntoView({ block: "center" });
    for (const line of lines(element)) {
      const [x, y] = [(line.left + line.right) / 2, (line.top + line.bottom) / 2];
      const over = document.elementFromPoint(x, y);
      if (over && !over.contains(element) && !element.contains(over))
        found.add(`covered: ${name(element)} by ${name(over)}`);
    }
  }
  return [...found];
}"""
"""Texts of a page that are outside of its window, clipped, covered, or over each other."""
