// The way back to where the reader was. A browser would scroll before the page is drawn, so this does
// it: each entry of the history has a key, and the position of each key is kept.

/** most is how many positions are kept, and patience how long a page may take to be drawn, in milliseconds. */
const most = 200, patience = 5000;
const storageKey = "orrery.scroll";

/** @type {Map<string, number>} */
let positions = new Map();
let key = "";
/** wanted is where to scroll while the page grows. */
let wanted = /** @type {{y: number, until: number} | null} */ (null);

/** enter names the entry of the history that is shown, and returns its position if it was shown before. */
function enter() {
	const known = history.state?.key;
	key = known ?? Date.now().toString(36) + Math.random().toString(36).slice(2);
	if (!known) history.replaceState({ ...history.state, key }, "");
	return positions.get(key);
}

/** leave keeps the position of the entry that was shown. */
function leave() {
	positions.delete(key);
	positions.set(key, wanted?.y ?? scrollY);
	for (const old of positions.keys()) if (positions.size > most) positions.delete(old);
}

/** moved follows a change of the address. It returns the position of an entry that was shown before. */
export function moved() {
	leave();
	return enter();
}

/**
 * to scrolls there, and again while the page grows until the reader does something.
 * @param {number} y
 */
export function to(y) {
	wanted = y ? { y, until: Date.now() + patience } : null;
	if (y) requestAnimationFrame(again); // after the page is drawn
	else scrollTo(0, 0);
}

function again() {
	if (wanted && Date.now() > wanted.until) wanted = null;
	if (wanted) scrollTo(0, wanted.y);
}

/** listen takes the scrolling over from the browser. Call it once. */
export function listen() {
	history.scrollRestoration = "manual";
	try {
		positions = new Map(JSON.parse(sessionStorage.getItem(storageKey) ?? "[]"));
	} catch {
		// Without them each page begins at its top.
	}
	to(enter() ?? 0);
	new ResizeObserver(again).observe(document.body);
	for (const type of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(type, () => { wanted = null; }, { passive: true, capture: true });
	addEventListener("pagehide", () => {
		leave();
		sessionStorage.setItem(storageKey, JSON.stringify([...positions]));
	});
}
