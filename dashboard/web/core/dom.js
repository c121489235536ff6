// A small renderer. h describes elements, mount draws a view, and redraw draws it again in the
// next frame. Text always becomes text nodes and attributes, so no string can become markup.

/**
 * @typedef {{tag: any, attrs: any, children: any[], key: any, el?: any, component?: any, drawn?: any}} VNode
 */

/**
 * h describes an element or a component.
 * @param {any} tag a tag name, "svg:" and a tag name, a function of (attrs, children), or a class with view()
 * @param {any} [attrs] attributes, properties, on… handlers, key, ref, style as an object
 * @param {...any} children
 * @returns {VNode}
 */
export function h(tag, attrs, ...children) {
	attrs = attrs ?? {};
	return { tag, attrs, children: flatten(children, []), key: attrs.key };
}

function flatten(list, into) {
	for (const c of list) {
		if (Array.isArray(c)) flatten(c, into);
		else if (c === null || c === undefined || c === false || c === true) into.push(null);
		else if (typeof c === "object") into.push(c);
		else into.push({ tag: "#text", attrs: { text: String(c) }, children: [], key: undefined });
	}
	return into;
}

/** @type {{el: Element, view: () => any, drawn: any}[]} */
const roots = [];
let scheduled = false;
/** drawFailure draws what is in the place of a component whose view failed. */
let drawFailure = (/** @type {any} */ err) => h("p", { role: "alert" }, String(err));
/** reported is the last failure of a view that was reported. */
let reported = "";

/**
 * mount draws view() into el whenever redraw is called. A component that fails is reported and
 * replaced by failed(err), and the rest of the page works on.
 * @param {Element} el
 * @param {() => any} view
 * @param {(err: any) => any} [failed]
 */
export function mount(el, view, failed) {
	if (failed) drawFailure = failed;
	const root = { el, view, drawn: /** @type {any} */ (null) };
	el.textContent = "";
	roots.push(root);
	draw(root);
}

/** redraw draws all views in the next frame. */
export function redraw() {
	if (scheduled) return;
	scheduled = true;
	// A page that is hidden or covered gets no frames, and still has to forget a user who left.
	if (!document.hidden) requestAnimationFrame(drawAll);
	setTimeout(drawAll, document.hidden ? 100 : 250);
}

/** @type {(() => void)[]} */
let after = [];

function drawAll() {
	if (!scheduled) return;
	scheduled = false;
	for (const root of roots) draw(root);
}

function draw(root) {
	const [next] = flatten([root.view()], []);
	const focused = /** @type {any} */ (document.activeElement);
	try {
		patch(root.el, root.drawn, next, null, false);
		root.drawn = next;
	} catch (err) {
		// The page is between two states. The next frame draws all of it.
		reportError(err);
		const lost = root.drawn;
		root.drawn = null;
		root.el.textContent = "";
		attempt(() => discard(lost));
	}
	// An element that moves among its siblings loses the focus.
	if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
	const run = after;
	after = [];
	for (const f of run) attempt(f);
}

/** attempt calls f. What fails is reported, and does not stop the drawing. */
function attempt(f) {
	try {
		f();
	} catch (err) {
		reportError(err);
	}
}

function patch(parent, old, next, before, svg) {
	if (old === next) return;
	if (next === null) {
		if (old !== null) remove(old);
		return;
	}
	if (old === null || old.tag !== next.tag || old.key !== next.key) {
		const el = create(next, svg);
		if (old !== null) {
			parent.insertBefore(el, first(old));
			remove(old);
		} else parent.insertBefore(el, before);
		return;
	}
	if (typeof next.tag === "string") update(old, next, svg);
	else {
		next.component = old.component;
		const drawn = view(next);
		const at = first(old.drawn);
		patch(at ? at.parentNode : parent, old.drawn, drawn, at ? at.nextSibling : before, svg);
		next.drawn = drawn;
		const c = next.component;
		if (c && c.updated) after.push(() => c.updated(first(next)));
	}
}

function view(v) {
	let drawn;
	try {
		drawn = v.component ? v.component.view(v.attrs, v.children) : v.tag(v.attrs, v.children);
	} catch (err) {
		drawn = drawFailure(err);
		if (String(err) !== reported) reportError(err); // a page is drawn often
		reported = String(err);
	}
	// A component always has an element, so that its place among its siblings is known.
	const [one] = flatten([drawn ?? ""], []);
	return one;
}

/** make returns a new component. One that cannot be made shows why. */
function make(v) {
	try {
		return new v.tag(v.attrs);
	} catch (err) {
		reportError(err);
		return { view: () => drawFailure(err) };
	}
}

function create(v, svg) {
	if (v.tag === "#text") return (v.el = document.createTextNode(v.attrs.text));
	if (typeof v.tag !== "string") {
		if (v.tag.prototype && v.tag.prototype.view) v.component = make(v);
		v.drawn = view(v);
		const el = create(v.drawn, svg);
		const c = v.component;
		if (c && c.mounted) after.push(() => c.mounted(first(v)));
		return el;
	}
	svg = svg || v.tag.startsWith("svg:");
	const name = v.tag.startsWith("svg:") ? v.tag.slice(4) : v.tag;
	const el = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
	v.el = el;
	for (const c of v.children) if (c !== null) el.appendChild(create(c, svg));
	for (const [k, value] of Object.entries(v.attrs)) set(el, k, undefined, value);
	if (v.attrs.ref) after.push(() => v.attrs.ref(el));
	return el;
}

function update(old, next, svg) {
	const el = (next.el = old.el);
	if (next.tag === "#text") {
		if (old.attrs.text !== next.attrs.text) el.data = next.attrs.text;
		return;
	}
	svg = svg || next.tag.startsWith("svg:");
	patchChildren(el, old.children, next.children, svg);
	for (const k in old.attrs) if (!(k in next.attrs)) set(el, k, old.attrs[k], undefined);
	for (const k in next.attrs) set(el, k, old.attrs[k], next.attrs[k]);
}

function patchChildren(el, old, next, svg) {
	if (next.length > 0 && next[0] !== null && next[0].key !== undefined) return patchKeyed(el, old, next, svg);
	const n = Math.max(old.length, next.length);
	for (let i = 0; i < n; i++) {
		const o = i < old.length ? old[i] : null;
		const w = i < next.length ? next[i] : null;
		let before = null;
		if (o === null && w !== null) for (let j = i + 1; j < old.length && before === null; j++) if (old[j] !== null) before = first(old[j]);
		patch(el, o, w, before, svg);
	}
}

function patchKeyed(el, old, next, svg) {
	const known = new Map();
	for (const o of old) if (o !== null && o.key !== undefined) known.set(o.key, o);
	const keep = new Set();
	for (const w of next) if (w !== null && known.has(w.key) && known.get(w.key).tag === w.tag) keep.add(w.key);
	for (const o of old) if (o !== null && (!keep.has(o.key) || known.get(o.key) !== o)) remove(o);
	let at = el.firstChild;
	for (const w of next) {
		if (w === null) continue;
		if (keep.has(w.key)) {
			const was = first(known.get(w.key));
			patch(el, known.get(w.key), w, null, svg);
			const dom = first(w); // another one if the component draws another tag now
			if (was === at) at = dom.nextSibling;
			else el.insertBefore(dom, at);
			keep.delete(w.key);
		} else el.insertBefore(create(w, svg), at);
	}
}

function first(v) {
	return typeof v.tag === "string" ? v.el : first(v.drawn);
}

function remove(v) {
	const el = first(v);
	discard(v);
	el.remove();
}

function discard(v) {
	if (v === null) return;
	if (typeof v.tag !== "string") {
		if (v.component && v.component.removed) attempt(() => v.component.removed());
		discard(v.drawn);
		return;
	}
	if (v.attrs.ref) v.attrs.ref(null);
	for (const c of v.children) discard(c);
}

const properties = new Set(["value", "checked", "disabled", "selected", "readOnly", "indeterminate", "open", "tabIndex", "scrollTop", "srcObject"]);

function set(el, name, old, value) {
	if (name === "key" || name === "ref") return;
	if (name.startsWith("on")) {
		el.$on = el.$on ?? {};
		const type = name.slice(2);
		if (!(type in el.$on)) el.addEventListener(type, handle, type === "wheel" || type === "touchmove" ? { passive: true } : false);
		el.$on[type] = value;
	} else if (name === "style") {
		for (const k in old ?? {}) if (!value || !(k in value)) el.style.removeProperty(k);
		for (const k in value ?? {}) if (!old || old[k] !== value[k]) el.style.setProperty(k, value[k]);
	} else if (properties.has(name)) {
		if (el[name] !== value && (name !== "value" || document.activeElement !== el || old !== value)) el[name] = value ?? "";
	} else if (old !== value) {
		if (value === undefined || value === null || value === false) el.removeAttribute(name);
		else el.setAttribute(name, value === true ? "" : String(value));
	}
}

/** handle calls an element's handler and draws what it changed. */
function handle(ev) {
	const f = this.$on[ev.type];
	if (!f) return;
	const result = f.call(this, ev);
	if (result === quiet) return;
	redraw();
	if (result && typeof result.then === "function") result.then(redraw, (err) => (redraw(), Promise.reject(err)));
}

/** quiet is what a handler returns when it changed nothing that is drawn. */
export const quiet = Symbol("quiet");
