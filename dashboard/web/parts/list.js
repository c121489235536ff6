// A list that draws only the rows that are in view, so that ten thousand scroll as ten.
import { h, quiet, redraw } from "../core/dom.js";
import { t } from "../core/text.js";

/**
 * @typedef {{id: string, label: string, width?: string, cell: (row: any) => any, sort?: (row: any) => any, align?: string, wide?: boolean}} Column
 * wide columns are left out where there is no room.
 */

/**
 * List draws rows as a table with a heading that sorts. Arrow keys move between rows, Enter opens
 * one, and Space selects it.
 *
 * attrs: rows, columns, id(row), href(row), selected (a Set, optional), onselect(), sort and
 * onsort(column id, descending), label, none (drawn when there are no rows).
 */
export class List {
	constructor() {
		this.top = 0;
		this.height = 600;
		this.rowHeight = 40;
		this.width = innerWidth - 260;
		this.focus = -1;
		/** @type {HTMLElement | null} */
		this.el = null;
		this.measure = () => {
			if (!this.el) return;
			const box = this.el.getBoundingClientRect();
			const height = Math.max(200, innerHeight);
			const top = Math.max(0, -box.top);
			const row = this.el.querySelector(".list-row");
			const rowHeight = row ? row.getBoundingClientRect().height : this.rowHeight;
			if (Math.floor(top / this.rowHeight) === Math.floor(this.top / this.rowHeight) && height === this.height && rowHeight === this.rowHeight && box.width === this.width) return;
			if (box.width > 0) this.width = box.width;
			this.top = top;
			this.height = height;
			if (rowHeight > 10) this.rowHeight = rowHeight;
			redraw();
		};
	}

	mounted(el) {
		this.el = el.querySelector(".list-body");
		addEventListener("scroll", this.measure, { passive: true });
		addEventListener("resize", this.measure);
		this.measure();
	}

	updated(el) {
		this.el = el.querySelector(".list-body");
		this.measure();
	}

	removed() {
		removeEventListener("scroll", this.measure);
		removeEventListener("resize", this.measure);
	}

	move(to, rows) {
		this.focus = Math.max(0, Math.min(rows.length - 1, to));
		const y = this.focus * this.rowHeight;
		const box = this.el?.getBoundingClientRect();
		if (box) {
			const rowTop = box.top + y;
			if (rowTop < 100) scrollBy(0, rowTop - 100);
			else if (rowTop + this.rowHeight > innerHeight - 20) scrollBy(0, rowTop + this.rowHeight - innerHeight + 20);
			this.top = Math.max(0, -(this.el?.getBoundingClientRect().top ?? 0));
		}
		redraw();
		requestAnimationFrame(() => requestAnimationFrame(() => /** @type {any} */ (this.el?.querySelector('[data-index="' + this.focus + '"]'))?.focus()));
	}

	keys(ev, index, row, a) {
		const page = Math.max(1, Math.floor(innerHeight / this.rowHeight) - 4);
		const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
		if (ev.key in steps) {
			ev.preventDefault();
			this.move(index + steps[ev.key], a.rows);
		} else if (ev.key === "Enter" && ev.target === ev.currentTarget && a.href) {
			location.hash = a.href(row);
		} else if (ev.key === " " && a.selected && ev.target === ev.currentTarget) {
			ev.preventDefault();
			toggle(a.selected, a.id(row));
			a.onselect?.();
		} else return quiet;
	}

	view(a) {
		const { rows, columns } = a;
		const over = 8;
		const from = Math.max(0, Math.floor(this.top / this.rowHeight) - over);
		const to = Math.min(rows.length, Math.ceil((this.top + this.height) / this.rowHeight) + over);
		const narrow = innerWidth < 760;
		const shown = narrow ? columns.filter((c) => !c.wide) : fitting(columns, this.width, Boolean(a.selected));
		const style = narrow ? {} : { "grid-template-columns": (a.selected ? "2.5rem " : "") + shown.map((c) => c.width ?? "minmax(0,1fr)").join(" ") };
		if (rows.length === 0 && a.none) return h("div", { class: "list" }, a.none, h("div", { class: "list-body" }));
		const focus = this.focus >= from && this.focus < to ? this.focus : from;
		return h(
			"div",
			{ class: "list", role: "table", "aria-label": a.label, "aria-rowcount": rows.length + 1 },
			h(
				"div",
				{ class: "list-head", role: "row", style },
				a.selected ? h("span", { role: "columnheader", class: "list-check" }, h("input", { type: "checkbox", "aria-label": t("list.all"), checked: rows.length > 0 && a.selected.size >= rows.length, indeterminate: a.selected.size > 0 && a.selected.size < rows.length, onchange: (ev) => { if (ev.target.checked) rows.forEach((r) => a.selected.add(a.id(r))); else a.selected.clear(); a.onselect?.(); } })) : null,
				shown.map((c) => {
					const current = a.sort?.column === c.id;
					const order = current ? (a.sort.descending ? "descending" : "ascending") : undefined;
					return h("span", { role: "columnheader", "aria-sort": order, class: c.align ?? "" }, c.sort && a.onsort ? h("button", { type: "button", class: "list-sort", onclick: () => a.onsort(c.id, current ? !a.sort.descending : false) }, c.label, current ? h("span", { "aria-hidden": "true" }, a.sort.descending ? " ↓" : " ↑") : null) : c.label);
				}),
			),
			h(
				"div",
				{ class: "list-body", role: "rowgroup", style: { height: rows.length * this.rowHeight + "px" } },
				rows.slice(from, to).map((row, n) => {
					const index = from + n, id = a.id(row);
					const marked = a.selected?.has(id);
					return h(
						"div",
						{ key: id, class: "list-row" + (marked ? " marked" : ""), role: "row", "aria-rowindex": index + 2, "aria-selected": a.selected ? String(Boolean(marked)) : undefined, "data-index": index, tabindex: index === focus ? "0" : "-1", style: { ...style, transform: "translateY(" + index * this.rowHeight + "px)" }, onkeydown: (ev) => this.keys(ev, index, row, a), onfocus: () => { this.focus = index; return quiet; } },
						a.selected ? h("span", { role: "cell", class: "list-check" }, h("input", { type: "checkbox", tabindex: "-1", "aria-label": t("list.select", { name: id }), checked: Boolean(marked), onchange: () => { toggle(a.selected, id); a.onselect?.(); } })) : null,
						shown.map((c, i) => h("span", { role: "cell", class: (c.align ?? "") + " cell-" + c.id, "data-label": i > 0 && c.align === "right" && c.id !== "actions" ? c.label : undefined }, i === 0 && a.href ? h("a", { href: a.href(row), tabindex: "-1" }, c.cell(row)) : c.cell(row))),
					);
				}),
			),
		);
	}
}

/** fitting leaves out wide columns, the last first, until the others have room. */
function fitting(columns, width, selects) {
	const shown = [...columns];
	const size = (c) => Number(/[\d.]+/.exec((c.width ?? "6").replace("minmax(", ""))?.[0] ?? 6) * 16 + 12;
	const needed = () => shown.reduce((n, c) => n + size(c), 30 + (selects ? 52 : 0));
	while (needed() > width) {
		const drop = shown.findLastIndex((c) => c.wide && c.id !== "actions");
		const last = drop >= 0 ? drop : shown.findLastIndex((c) => c.wide);
		if (last < 0) break;
		shown.splice(last, 1);
	}
	return shown;
}

function toggle(set, id) {
	if (set.has(id)) set.delete(id);
	else set.add(id);
}

const collator = new Intl.Collator("en", { numeric: true });

/**
 * sorted returns rows in the order of a column.
 * @param {any[]} rows
 * @param {Column[]} columns
 * @param {{column: string, descending?: boolean}} by
 */
export function sorted(rows, columns, by) {
	const key = columns.find((c) => c.id === by.column)?.sort;
	if (!key) return rows;
	const keyed = rows.map((row) => ({ row, key: key(row) }));
	const sign = by.descending ? -1 : 1;
	keyed.sort((a, b) => sign * compare(a.key, b.key));
	return keyed.map((k) => k.row);
}

/** compare orders numbers, texts with numbers in them, and missing values last. */
export function compare(a, b) {
	const x = a ?? null, y = b ?? null;
	if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
	if (typeof x === "number" && typeof y === "number") return x - y;
	return collator.compare(String(x), String(y));
}
