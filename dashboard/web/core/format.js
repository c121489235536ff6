// Numbers, sizes and times as people read them.
import { now } from "./api.js";
import { language, t } from "./text.js";

/**
 * kept is formatters by language and name. Making one costs far more than using it: with them a row of
 * a list is drawn in less time (ui_scroll_frame_cpu_p95_ms of make bench-ui).
 * @type {Record<string, any>}
 */
const kept = {};

/** formatter returns the formatter of a name in the language in use. make makes it once. */
function formatter(name, make) {
	return (kept[language() + " " + name] ??= make(language()));
}

/** @param {number | null | undefined} n */
export function number(n) {
	return n === null || n === undefined ? "–" : decimals(n, 3);
}

/** decimals formats a number with at most some decimals. */
function decimals(n, most) {
	return formatter("decimals " + most, (l) => new Intl.NumberFormat(l, { maximumFractionDigits: most })).format(n);
}

/** mib formats a size that is in MiB. */
export function mib(n) {
	if (n === null || n === undefined) return "–";
	if (n >= 1024 * 1024) return fixed(n / 1024 / 1024) + " TiB";
	if (n >= 1024) return fixed(n / 1024) + " GiB";
	return fixed(n) + " MiB";
}

/** bytes formats a size that is in bytes. */
export function bytes(n) {
	if (n === null || n === undefined) return "–";
	if (n < 1024) return n + " B";
	if (n < 1024 * 1024) return fixed(n / 1024) + " KiB";
	return mib(n / 1024 / 1024);
}

function fixed(n) {
	return decimals(n, n < 10 ? 1 : 0);
}

/** percent formats a fraction of 1. */
export function percent(f) {
	return f === null || f === undefined || Number.isNaN(f) ? "–" : Math.round(f * 100) + " %";
}

/** cores formats hundredths of a core. */
export function cores(h) {
	return h === null || h === undefined ? "–" : decimals(h / 100, 2);
}

/** duration formats milliseconds with one or two units: 3 d 4 h. */
export function duration(ms) {
	if (ms === null || ms === undefined) return "–";
	const s = Math.max(0, Math.floor(ms / 1000));
	if (s < 60) return s + " s";
	if (s < 3600) return Math.floor(s / 60) + " min" + (s % 60 && s < 600 ? " " + (s % 60) + " s" : "");
	if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
	return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

/** ago formats how long ago a time was. */
export function ago(when) {
	const at = typeof when === "number" ? when : Date.parse(when ?? "");
	if (!at) return "–";
	const ms = now() - at;
	if (ms < 0 && ms > -2000) return t("time.now");
	return ms < 0 ? t("time.in", { duration: duration(-ms) }) : t("time.ago", { duration: duration(ms) });
}

/** time formats a time of today as a clock time, and others with their day. */
export function time(when) {
	const at = new Date(when);
	if (Number.isNaN(at.getTime())) return "–";
	const today = new Date(now()).toDateString() === at.toDateString();
	return today
		? formatter("time", (l) => new Intl.DateTimeFormat(l, { timeStyle: "medium" })).format(at)
		: formatter("day", (l) => new Intl.DateTimeFormat(l, { dateStyle: "medium", timeStyle: "short" })).format(at);
}

/**
 * visible replaces characters that change how the text around them is shown: controls, bidi
 * marks and zero-width characters.
 * @param {any} s
 */
export function visible(s) {
	return String(s ?? "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}
