// Light or dark theme: the system's, until the button changes it. The choice is kept for all pages.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("conformance-theme", value);
      return localStorage.getItem("conformance-theme");
    } catch {
      return value; // storage is refused: the choice holds for this page
    }
  };
  const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const choice = stored();
  if (choice === "dark" || choice === "light") root.dataset.theme = choice;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = theme() === "dark" ? "Light theme" : "Dark theme";
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      stored(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
  });
})();
