// What keeps people from reading or using the page, each problem as one line. An expression, for page.evaluate.
() => {
  const problems = [], seen = (it) => it.checkVisibility() && it.getClientRects().length;
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  if (new Set(ids).size !== ids.length) problems.push("an id twice");
  for (const it of document.querySelectorAll("a, button, input")) {
    const name = it.textContent.trim() || it.getAttribute("aria-label") || it.labels?.[0]?.textContent;
    if (!name) problems.push(`no name: ${it.outerHTML}`);
    const size = it.getBoundingClientRect();
    if (seen(it) && it.tagName !== "A" && size.height < 24) problems.push(`small: ${it.textContent} ${size.height}`);
  }
  for (const it of document.querySelectorAll("section, [role=region], [role=group], dialog"))
    if (!it.getAttribute("aria-label") && !document.getElementById(it.getAttribute("aria-labelledby"))) problems.push(`no label: ${it.id}`);
  for (const it of document.querySelectorAll("ul > :not(li), ol > :not(li)")) problems.push(`in a list: ${it.tagName}`);
  let level = 0;
  for (const it of [...document.querySelectorAll("main h2, main h3, header h1")]) {
    if (it.tagName[1] - level > 1) problems.push(`a level of headings is missing: ${it.textContent}`);
    level = Number(it.tagName[1]);
  }
  for (const name of ["header", "main", "nav", "h1", "html[lang]", "[role=status]"]) if (document.querySelectorAll(name).length !== 1) problems.push(name);
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const painted = (...colours) => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const it of document.querySelectorAll("body *")) {
    if (!seen(it) || it.closest(".unseen, .skip, button:disabled") || ![...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const grounds = [];
    for (let up = it; up; up = up.parentElement) grounds.unshift(getComputedStyle(up).backgroundColor);
    const ground = painted("white", ...grounds), text = painted(getComputedStyle(it).color);
    const ratio = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${it.textContent.slice(0, 40)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  return [...new Set(problems)];
}
