// Lines over time on a canvas.
import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { language, t } from "../core/text.js";

/**
 * Chart draws series over time. attrs: series [{name, values, color (1 to 5)}], from, step (in
 * milliseconds), height, format(value), max, small (a sparkline without axes), label.
 */
export class Chart {
	constructor(attrs) {
		this.attrs = attrs;
		this.at = /** @type {number | null} */ (null);
		this.el = /** @type {HTMLCanvasElement | null} */ (null);
		this.drawn = "";
		this.again = () => this.paint(true);
	}

	mounted(el) {
		this.el = el.tagName === "CANVAS" ? el : el.querySelector("canvas");
		this.watch = new ResizeObserver(this.again);
		if (this.el) this.watch.observe(this.el);
		this.dark = matchMedia("(prefers-color-scheme: dark)");
		this.dark.addEventListener("change", this.again);
		this.paint(true);
	}

	updated() {
		this.paint(false);
	}

	removed() {
		this.watch?.disconnect();
		this.dark?.removeEventListener("change", this.again);
	}

	paint(always) {
		const canvas = this.el, a = this.attrs;
		if (!canvas) return;
		const state = JSON.stringify([a.series.map((s) => s.values), this.at, document.documentElement.dataset.theme]);
		if (!always && state === this.drawn) return; // before it is measured, which would lay out the page
		const box = canvas.getBoundingClientRect();
		if (box.width === 0) return;
		this.drawn = state;
		const scale = devicePixelRatio || 1, width = box.width, height = a.height ?? (a.small ? 36 : 160);
		if (!a.small) canvas.style.height = height + "px";
		canvas.width = width * scale;
		canvas.height = (a.small ? box.height : height) * scale;
		const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
		c.scale(scale, scale);
		const style = getComputedStyle(canvas), color = (name) => style.getPropertyValue(name);
		const H = a.small ? box.height : height;
		const left = a.small ? 1 : 44, bottom = a.small ? 2 : 20, top = a.small ? 3 : 8, right = a.small ? 1 : 8;
		const all = a.series.flatMap((s) => s.values).filter((v) => v !== null && v !== undefined);
		const most = nice(Math.max(a.max ?? 0, ...all, a.small ? 0.001 : 1));
		const n = Math.max(2, ...a.series.map((s) => s.values.length));
		const x = (i) => left + ((width - left - right) * i) / (n - 1), y = (v) => H - bottom - ((H - bottom - top) * v) / most;
		if (!a.small) {
			c.font = "11px system-ui, sans-serif";
			c.fillStyle = color("--muted");
			c.strokeStyle = color("--line");
			c.textBaseline = "middle";
			for (const part of [0, 0.5, 1]) {
				const v = most * part;
				c.textAlign = "right";
				c.fillText(a.format ? a.format(v) : number(v), left - 6, y(v), left - 6);
				line(c, left, y(v), width - right, y(v));
			}
			c.textBaseline = "alphabetic";
			for (const part of [0, 0.5, 1]) {
				const i = Math.round((n - 1) * part);
				c.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
				c.fillText(new Date(a.from + i * a.step).toLocaleTimeString(language(), { hour: "2-digit", minute: "2-digit" }), x(i), H - 5);
			}
		}
		for (const s of a.series) {
			c.strokeStyle = c.fillStyle = color("--s" + (s.color ?? 1));
			c.lineWidth = 1.75;
			c.lineJoin = "round";
			c.beginPath();
			let pen = false;
			s.values.forEach((v, i) => {
				if (v === null || v === undefined) return void (pen = false);
				if (pen) c.lineTo(x(i), y(v));
				else c.moveTo(x(i), y(v));
				const alone = !pen && (s.values[i + 1] === null || s.values[i + 1] === undefined);
				if (alone) c.lineTo(x(i) + 0.1, y(v)), c.rect(x(i) - 1, y(v) - 1, 2, 2);
				pen = true;
			});
			c.stroke();
		}
		if (this.at !== null && !a.small) {
			c.strokeStyle = color("--line-strong");
			c.lineWidth = 1;
			line(c, x(this.at), top, x(this.at), H - bottom);
		}
	}

	view(attrs) {
		this.attrs = attrs;
		const a = attrs;
		const last = (s) => { for (let i = s.values.length - 1; i >= 0; i--) if (s.values[i] !== null && s.values[i] !== undefined) return s.values[i]; return null; };
		const format = a.format ?? number;
		const said = a.label + ": " + a.series.map((s) => s.name + " " + format(last(s))).join(", ");
		if (a.small) return h("canvas", { class: "chart", role: "img", "aria-label": said });
		const point = (ev) => {
			const box = ev.currentTarget.getBoundingClientRect(), n = Math.max(2, ...a.series.map((s) => s.values.length));
			this.at = Math.max(0, Math.min(n - 1, Math.round(((ev.clientX - box.left - 44) / (box.width - 52)) * (n - 1))));
		};
		return h(
			"figure",
			{ class: "figure" },
			h("canvas", { class: "chart", role: "img", "aria-label": said, onmousemove: point, onmouseleave: () => { this.at = null; } }),
			h("figcaption", { class: "legend" }, h("span", { class: "muted" }, this.at === null ? t("chart.now") : new Date(a.from + this.at * a.step).toLocaleTimeString(language())), a.series.map((s) => h("span", null, h("i", { class: "swatch s" + (s.color ?? 1) }), s.name, " ", h("strong", null, format(this.at === null ? last(s) : s.values[this.at]))))),
		);
	}
}

function line(c, x1, y1, x2, y2) {
	c.lineWidth = 1;
	c.beginPath();
	c.moveTo(x1, Math.round(y1) + 0.5);
	c.lineTo(x2, Math.round(y2) + 0.5);
	c.stroke();
}

/** nice rounds up to 1, 2 or 5 times a power of ten. */
function nice(v) {
	const power = 10 ** Math.floor(Math.log10(v));
	for (const m of [1, 2, 5, 10]) if (v <= m * power) return m * power;
	return v;
}
