// Differences of two texts, line by line.
import { h } from "../core/dom.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";

/** @typedef {{mark: string, text: string, old: number, next: number}} DiffLine */

/** around is the number of unchanged lines that are shown before and after a change. */
const around = 3;
/** mostRows bounds what is drawn of a difference. */
const mostRows = 2000;

/**
 * lines compares two texts with the longest common subsequence of their lines.
 * @param {string} before
 * @param {string} after
 * @returns {{kind: "same" | "removed" | "added", text: string}[]}
 */
export function lines(before, after) {
	const a = before.split("\n"), b = after.split("\n");
	let head = 0;
	while (head < a.length && head < b.length && a[head] === b[head]) head++;
	let tail = 0;
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
	const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
	/** @type {any[]} */
	const out = a.slice(0, head).map((text) => ({ kind: "same", text }));
	if (x.length * y.length > 4_000_000) out.push(...x.map((text) => ({ kind: "removed", text })), ...y.map((text) => ({ kind: "added", text })));
	else {
		const common = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
		for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) common[i][j] = x[i] === y[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
		let i = 0, j = 0;
		while (i < x.length || j < y.length) {
			if (i < x.length && j < y.length && x[i] === y[j]) out.push({ kind: "same", text: x[i++] }), j++;
			else if (i < x.length && (j === y.length || common[i + 1][j] >= common[i][j + 1])) out.push({ kind: "removed", text: x[i++] });
			else out.push({ kind: "added", text: y[j++] });
		}
	}
	out.push(...a.slice(a.length - tail).map((text) => ({ kind: "same", text })));
	return out;
}

/** parseUnified reads a difference in the format of diff -u. */
export function parseUnified(text) {
	/** @type {DiffLine[][]} */
	const hunks = [];
	let old = 0, next = 0;
	for (const line of text.split("\n")) {
		const at = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
		if (at) {
			hunks.push([]);
			old = Number(at[1]);
			next = Number(at[2]);
		} else if (hunks.length > 0) {
			const hunk = hunks[hunks.length - 1], mark = line[0], text = line.slice(1);
			if (mark === " ") hunk.push({ mark, text, old: old++, next: next++ });
			else if (mark === "-") hunk.push({ mark, text, old: old++, next: 0 });
			else if (mark === "+") hunk.push({ mark, text, old: 0, next: next++ });
		}
	}
	return hunks;
}

/** hunksOf returns the changed parts of a comparison, each with some lines around it. */
export function hunksOf(lines) {
	const hunks = [];
	for (let from = 0; from < lines.length; ) {
		let first = from;
		while (first < lines.length && lines[first].mark === " ") first++;
		if (first === lines.length) break;
		let last = first;
		for (let i = first; i < lines.length && i - last <= 2 * around; i++) if (lines[i].mark !== " ") last = i;
		const end = Math.min(lines.length, last + 1 + around);
		hunks.push(lines.slice(Math.max(from, first - around), end));
		from = end;
	}
	return hunks;
}

/** numbered compares two texts. A line has its number in each text, or 0. */
function numbered(before, after) {
	const all = lines(before, after);
	const last = all[all.length - 1];
	// The end of the last line is not a line.
	if (last?.kind === "same" && last.text === "") all.pop();
	let old = 0, next = 0;
	return all.map((l) => ({ mark: l.kind === "added" ? "+" : l.kind === "removed" ? "-" : " ", text: l.text, old: l.kind === "added" ? 0 : ++old, next: l.kind === "removed" ? 0 : ++next }));
}

/**
 * textDiff draws the lines that differ between two texts, with three around them.
 * @param {string} before
 * @param {string} after
 * @param {string} [label]
 */
export function textDiff(before, after, label) {
	return table(compared(before, after), label ?? t("audit.difference"));
}

/**
 * unifiedDiff draws a difference in the format of diff -u.
 * @param {string} text
 * @param {string} label
 */
export function unifiedDiff(text, label) {
	return table(parseUnified(text), label);
}

/** table draws changed parts. */
function table(hunks, label) {
	if (hunks.length === 0) return h("p", { class: "muted" }, t("diff.same"));
	let rows = 0;
	const body = [];
	for (const hunk of hunks) {
		if (rows >= mostRows) break;
		if (body.length > 0 || hunk[0].old > 1 || hunk[0].next > 1) body.push(h("tr", { class: "diff-gap" }, h("td", { colspan: "4" }, t("diff.line", { line: hunk.find((l) => l.next)?.next ?? hunk[0].old }))));
		for (const l of hunk) {
			if (++rows > mostRows) break;
			body.push(h("tr", { class: l.mark === "+" ? "diff-new" : l.mark === "-" ? "diff-old" : "" }, h("td", { class: "diff-number" }, l.old || ""), h("td", { class: "diff-number" }, l.next || ""), h("td", { class: "diff-mark" }, l.mark === " " ? "" : l.mark === "+" ? h("ins", { "aria-label": t("diff.added") }, "+") : h("del", { "aria-label": t("diff.removed") }, "-")), h("td", { class: "diff-text" }, visible(l.text.length > 2000 ? l.text.slice(0, 2000) + "…" : l.text))));
		}
	}
	return h("div", { class: "diff scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", null, h("tbody", null, body)), rows > mostRows ? h("p", { class: "muted" }, t("diff.more", { count: mostRows })) : null);
}

/** The last comparison of each pair of texts that is on the page. A page is drawn often. */
const memory = new Map();

function compared(old, next) {
	const known = memory.get(next);
	if (known && known.old === old) return known.hunks;
	const hunks = hunksOf(numbered(old, next));
	if (memory.size > 20) memory.clear();
	memory.set(next, { old, hunks });
	return hunks;
}

/**
 * sideBySide draws two versions of a text beside each other. On narrow pages they are below each other.
 * @param {{old: string, next: string, oldLabel: string, nextLabel: string}} o
 */
export function sideBySide(o) {
	const hunks = compared(o.old, o.next);
	const side = (label, other, cls) => h("section", null, h("h3", null, label), h("div", { class: "diff scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", null, h("tbody", null, hunks.slice(0, 200).flatMap((hunk, i) => [i > 0 ? h("tr", { class: "diff-gap" }, h("td", { colspan: "3" }, "…")) : null, ...hunk.filter((l) => l.mark !== other).map((l) => h("tr", { class: l.mark === " " ? "" : cls }, h("td", { class: "diff-number" }, other === "+" ? l.old : l.next), h("td", { class: "diff-text" }, visible(l.text.slice(0, 2000)))))])))));
	if (hunks.length === 0) return h("p", { class: "muted" }, t("diff.same"));
	return h("div", { class: "sides" }, side(o.oldLabel, "+", "diff-old"), side(o.nextLabel, "-", "diff-new"));
}
