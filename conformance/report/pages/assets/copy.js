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
  const announcement = document.createElement("p");
  announcement.setAttribute("role", "status");
  announcement.className = "announcement";
  document.querySelector("main").append(announcement);
  for (const button of document.querySelectorAll("button.copy")) {
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copy(button.parentElement.querySelector("code"));
      button.textContent = announcement.textContent = done ? "Copied" : "Not copied: select it by hand";
      setTimeout(() => {
        button.textContent = label;
        announcement.textContent = "";
      }, 2000);
    });
  }
});
