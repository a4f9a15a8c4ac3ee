// The model of an exported page: looks frames up where the kernel would compute them.

// Mixed-radix place of the settings among all states, the last control running fastest.
export function placeOfState(controls, settings) {
  return controls.reduce((place, { name, values }) =>
    place * values.length + Math.max(0, values.indexOf(settings[name])), 0);
}

// One state's view from the interned table: keys[i] has the value table[row[i]].
export function viewOf(data, place) {
  const row = data.states[place];
  if (typeof row === "string") return { refused: row };
  return Object.fromEntries(row.map((at, i) => [data.keys[i], data.table[at]]));
}

export function pageModel(data, later = (f) => setTimeout(f, 0)) {
  const { controls } = data.about;
  const heard = new Set();
  let n = 0, settings = { ...data.start };
  const view = (note = "") => {
    const { says, scene, fixed, ...frame } = viewOf(data, placeOfState(controls, settings));
    n += 1;
    return { n, says, scene: data.table[scene] ?? {}, frame, running: false, note,
      settings: { ...data.fixed, ...fixed, ...settings } };
  };
  let now = view();
  const set = (changes) => {
    const wanted = { ...settings, ...changes };
    const { refused } = viewOf(data, placeOfState(controls, wanted));
    if (!refused) settings = wanted;
    now = view(refused ?? "");
    later(() => heard.forEach((hear) => hear()));
  };
  return {
    get: (name) => ({ about: data.about, view: now, scene: now.scene })[name],
    on: (_, hear) => heard.add(hear),
    off: (_, hear) => heard.delete(hear),
    send: (message) => { if (message.type === "set") set(message.changes); },
  };
}

export async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

export async function start(widget, element, text) {
  const data = await unpacked(text);
  element.replaceChildren();
  widget.render({ model: pageModel(data), el: element });
}
