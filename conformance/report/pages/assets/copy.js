// A button for each script and command, which copies it. Without JavaScript there is no button.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  // A page opened from disk may be refused the clipboard; then what is selected is copied.
  const bySelection = (code) => {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  };
  const copy = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      return bySelection(code);
    }
  };
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  said.className = "said";
  document.querySelector("main").append(said);
  for (const button of document.querySelectorAll("button.copy")) {
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copy(button.parentElement.querySelector("code"));
      button.textContent = said.textContent = done ? "Copied" : "Not copied: select it by hand";
      setTimeout(() => {
        button.textContent = label;
        said.textContent = "";
      }, 2000);
    });
  }
});
