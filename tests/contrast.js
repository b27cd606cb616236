// Return each text of the page whose contrast is below that of WCAG 2.1, level AA: 4.5, and 3 for
// large text. Text in drawings is left out: what lies behind it is not its parent.
() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  // Any colour of CSS as red, green and blue from 0 to 255 and alpha from 0 to 1
  const parse = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (front, back) =>
    [0, 1, 2].map((place) => front[place] * front[3] + back[place] * (1 - front[3]));

  const backgroundOf = (element) => {
    if (!element) return parse("Canvas").slice(0, 3);
    const own = parse(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, backgroundOf(element.parentElement));
  };
  const luminance = (color) => {
    const [red, green, blue] = color.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };

  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const words = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    const visible = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!words || !visible || element.closest("svg, script, style, .unseen")) continue;
    const style = getComputedStyle(element);
    const background = backgroundOf(element);
    const color = over(parse(style.color), background);
    const [darker, lighter] = [luminance(color), luminance(background)].sort((a, b) => a - b);
    const ratio = (lighter + 0.05) / (darker + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) found.add(`${words.slice(0, 40)}: contrast ${ratio.toFixed(2)}`);
  }
  return [...found];
}
