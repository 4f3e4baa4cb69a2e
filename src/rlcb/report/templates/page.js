/* Colours on request, and what a page that is kept current needs: it loads itself again, and whoever reads it stays
   where they were: place, charts, open parts and focus are kept for the time of the visit. */
(() => {
  const root = document.documentElement, every = Number(root.dataset.refresh || 0), name = `rlcb:${location.pathname}`;
  const FOCUSABLE = "a[href], button, summary, [tabindex]";
  const IDLE = 3; // seconds without input before the page may be replaced

  function kept() {
    try { return JSON.parse(sessionStorage.getItem(name)) || {}; } catch { return {}; }
  }

  function keep(values) {
    try { sessionStorage.setItem(name, JSON.stringify({ ...kept(), ...values })); } catch { /* no storage: nothing is kept */ }
  }

  function place() {
    const sections = [...document.querySelectorAll("section[id]")];
    const above = sections.filter((section) => section.getBoundingClientRect().top <= 0).pop();
    return above ? { id: above.id, offset: -above.getBoundingClientRect().top } : { offset: scrollY };
  }

  function goTo({ id, offset }) {
    const section = id && document.getElementById(id);
    scrollTo(0, (section ? section.getBoundingClientRect().top + scrollY : 0) + offset);
  }

  /* Where an element that can be used is: in which part of the page, and which one it is there. */
  const partOf = (element) => {
    const part = element.closest("[data-chart], section[id], header");
    return part ? [part.dataset.chart || part.id, [...part.querySelectorAll(FOCUSABLE)].indexOf(element)] : null;
  };

  function focusOn([name, number]) {
    const part = document.querySelector(`[data-chart="${CSS.escape(name)}"]`) || document.getElementById(name);
    part?.querySelectorAll(FOCUSABLE)[number]?.focus({ preventScroll: true });
  }

  const state = kept();
  charts.start(state.charts || {}, () => keep({ charts: charts.states() }));

  // Light or dark: what the system says, until a reader chooses.
  const system = matchMedia("(prefers-color-scheme: dark)"), toggle = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function label() {
    toggle.textContent = isDark() ? "Light colours" : "Dark colours";
    charts.recolour();
  }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("rlcb-theme", root.dataset.theme); } catch { /* for this visit only */ }
    label();
  });
  system.addEventListener("change", label);
  label();

  if (state.reloaded) {
    keep({ reloaded: false });
    history.scrollRestoration = "manual";
    for (const one of document.querySelectorAll("details")) {
      one.open = state.reloaded.open.includes(one.querySelector("summary").textContent);
    }
    if (state.reloaded.focus) focusOn(state.reloaded.focus);
    goTo(state.reloaded.place);
  }
  if (!every) return;

  const pause = document.getElementById("pause");
  let last = -Infinity, paused = Boolean(state.paused);
  for (const kind of ["pointerdown", "pointermove", "wheel", "keydown", "touchmove"]) {
    addEventListener(kind, () => { last = performance.now(); }, { passive: true });
  }

  function showPause() {
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Updates paused" : "Pause updates";
  }
  pause.hidden = false;
  pause.addEventListener("click", () => { paused = !paused; keep({ paused }); showPause(); });
  showPause();

  function reload() {
    const open = [...document.querySelectorAll("details[open] > summary")].map((one) => one.textContent);
    keep({ reloaded: { place: place(), open, focus: partOf(document.activeElement) } });
    location.reload();
  }

  const began = performance.now();
  setInterval(() => {
    const now = performance.now(), selecting = !getSelection().isCollapsed;
    const busy = paused || selecting || document.hidden || now - last < IDLE * 1000;
    if (!busy && now - began >= every * 1000) reload();
  }, 250);
})();
