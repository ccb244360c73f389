"""What the tests ask of a page in the browser: JavaScript that returns what is wrong with it."""

# Elements that make the page wider than the window, seen from the article
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .slice(0, 5).map(e => e.tagName + "." + e.className)"""

# Formulas that were not typeset, or with an error in them, and text that still has TeX's delimiters
RAW_MATHS = r"""() => {
  const raw = [...document.querySelectorAll("article .math")].filter(e => !e.querySelector("mjx-container"));
  // An unknown macro is no error to MathJax: it is shown in red
  const wrong = [...document.querySelectorAll('article :is(mjx-merror, mjx-assistive-mml mtext[mathcolor="red"])')];
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const left = [];
  while (walker.nextNode()) {
    const {textContent, parentElement} = walker.currentNode;
    const shown = !parentElement.closest("pre, code, script, style, mjx-container");
    if (shown && /\\[([]|\$\$|\$[^$\s][^$]*\$/.test(textContent)) left.push(parentElement);
  }
  return [...raw, ...wrong, ...left].map(e => e.textContent.trim().slice(0, 120));
}"""

HEADINGS = """() => [...document.querySelectorAll("article :is(h1, h2, h3, h4, h5, h6)")].map(e => +e.tagName[1])"""

IMAGES = """() => [...document.querySelectorAll("article img")]
  .filter(e => !(e.getAttribute("alt") ?? "").trim() || /\\.(png|svg|jpe?g)$/i.test(e.alt)).map(e => e.src)"""

CONTRASTS = r"""selector => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parse = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return {rgb: [r, g, b], a: a / 255};
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const {rgb, a} = parse(getComputedStyle(e).backgroundColor);
      if (a > 0.99) return rgb;
    }
    return parse(getComputedStyle(document.documentElement).getPropertyValue("--pst-color-background")).rgb;
  };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  return [...document.querySelectorAll(selector)].filter(e => e.checkVisibility()).map(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(ground(e))];
    return [e.textContent.trim().slice(0, 40), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}"""
