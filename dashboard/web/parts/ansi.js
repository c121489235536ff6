// Console lines with the colours that servers print. Colours and weights are obeyed, and in a line that is
// rewritten with carriage returns, the erasing of text in it. Every other sequence is removed, so a
// server cannot change the page, the title or the clipboard.

/** @typedef {{text: string, class: string}} Span */

const escape = /\u001b(?:\[([0-9:;<=>?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[PX^_][^\u001b]*(?:\u001b\\|$)|[ -/]*[0-~]|$)/g;
const colors = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/**
 * spans splits a line into parts of one look.
 * @param {string} line
 * @returns {Span[]}
 */
export function spans(line) {
	if (isRewritten(line)) return overwritten(line);
	if (line.indexOf("\u001b") < 0 && line.indexOf("\u00a7") < 0) return [{ text: clean(line), class: "" }];
	const list = [];
	let look = start(), at = 0;
	const push = (text) => {
		text = clean(text);
		if (text) list.push({ text, class: name(look) });
	};
	for (const m of line.matchAll(escape)) {
		push(line.slice(at, m.index));
		at = m.index + m[0].length;
		if (m[2] === "m") look = apply(look, m[1]);
	}
	push(line.slice(at));
	return list;
}

/** plain returns a line without sequences, as it is searched and copied. */
export function plain(line) {
	if (isRewritten(line)) return overwritten(line).map((s) => s.text).join("");
	return clean(line.replace(escape, ""));
}

/**
 * isRewritten reports whether a carriage return leads back to the beginning of a line. The event stream
 * has a line feed in its place.
 * @param {string} line
 */
export function isRewritten(line) {
	return /[\r\n][^\r\n]/.test(line);
}

/** overwritten returns what a terminal shows of a rewritten line: each part is written over the one before. */
function overwritten(line) {
	const cells = /** @type {Span[]} */ ([]);
	let look = start(), at = 0, column = 0;
	const write = (text) => {
		for (const c of text) {
			if (c === "\r" || c === "\n") column = 0;
			else cells[column++] = { text: clean(c), class: name(look) };
		}
	};
	for (const m of line.matchAll(escape)) {
		write(line.slice(at, m.index));
		at = m.index + m[0].length;
		if (m[2] === "m") look = apply(look, m[1]);
		else if (m[2] === "K" && m[1] === "2") cells.fill({ text: " ", class: "" });
		else if (m[2] === "K" && (m[1] === "" || m[1] === "0")) cells.length = Math.min(cells.length, column);
	}
	write(line.slice(at));
	const list = /** @type {Span[]} */ ([]);
	for (const c of cells) {
		const last = list[list.length - 1];
		if (last?.class === c.class) last.text += c.text;
		else list.push({ ...c });
	}
	return list;
}

/** clean shows control, bidi and zero-width characters as what they are. A tab stays. */
function clean(s) {
	return s.replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => (c === "\r" || c === "\n" ? "" : "\ufffd"));
}

function start() {
	return { fg: "", bg: "", bold: false, dim: false, italic: false, underline: false, strike: false };
}

function apply(look, codes) {
	look = { ...look };
	const list = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
	for (let i = 0; i < list.length; i++) {
		const c = list[i];
		if (c === 0) look = start();
		else if (c === 1) look.bold = true;
		else if (c === 2) look.dim = true;
		else if (c === 3) look.italic = true;
		else if (c === 4) look.underline = true;
		else if (c === 9) look.strike = true;
		else if (c === 22) look.bold = look.dim = false;
		else if (c === 23) look.italic = false;
		else if (c === 24) look.underline = false;
		else if (c === 29) look.strike = false;
		else if (c >= 30 && c <= 37) look.fg = colors[c - 30];
		else if (c >= 90 && c <= 97) look.fg = "bright-" + colors[c - 90];
		else if (c === 39) look.fg = "";
		else if (c >= 40 && c <= 47) look.bg = colors[c - 40];
		else if (c >= 100 && c <= 107) look.bg = "bright-" + colors[c - 100];
		else if (c === 49) look.bg = "";
		else if (c === 38 || c === 48) {
			const [color, used] = extended(list.slice(i + 1));
			if (c === 38) look.fg = color;
			else look.bg = color;
			i += used;
		}
	}
	return look;
}

/** extended maps a colour of 256 or of 24 bits to the nearest of the sixteen. */
function extended(rest) {
	if (rest[0] === 5) {
		const n = rest[1];
		if (n < 8) return [colors[n] ?? "", 2];
		if (n < 16) return ["bright-" + colors[n - 8], 2];
		if (n >= 232) return [nearest((n - 232) * 10 + 8, (n - 232) * 10 + 8, (n - 232) * 10 + 8), 2];
		const c = n - 16, level = (x) => (x ? 55 + 40 * x : 0);
		return [nearest(level(Math.floor(c / 36)), level(Math.floor(c / 6) % 6), level(c % 6)), 2];
	}
	if (rest[0] === 2) return [nearest(rest[1], rest[2], rest[3]), 4];
	return ["", rest.length];
}

function nearest(r, g, b) {
	const most = Math.max(r, g, b);
	if (most < 48) return "black";
	const bit = (v) => (v > most * 0.6 ? 1 : 0);
	return (most > 180 ? "bright-" : "") + colors[bit(r) | (bit(g) << 1) | (bit(b) << 2)];
}

function name(l) {
	return [l.fg && "fg-" + l.fg, l.bg && "bg-" + l.bg, l.bold && "bold", l.dim && "dim", l.italic && "italic", l.underline && "underline", l.strike && "strike"].filter(Boolean).join(" ");
}
