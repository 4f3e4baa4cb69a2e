/* Runs before the page is drawn: the colours that the reader chose, if any. */
try {
  const theme = localStorage.getItem("rlcb-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage may be switched off: the system's colours stay */ }
