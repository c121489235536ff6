// The logins of a user.
import { h } from "../core/dom.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { age, attempt, button } from "./ui.js";

const most = 20;

/**
 * sessionList draws logins, with buttons that end one or all of them.
 * @param {any[]} all
 * @param {{end: ((s: any) => Promise<any>) | null, endAll: () => Promise<any>, reload: () => any, who: string, ended?: () => any}} o
 */
export function sessionList(all, o) {
	if (all.length === 0) return h("p", { class: "muted" }, t("sessions.none"));
	const sorted = [...all].sort((a, b) => Number(b.current) - Number(a.current) || Date.parse(b.signedInAt) - Date.parse(a.signedInAt));
	return h("div", { class: "page" },
		h("ul", { class: "plain" }, sorted.slice(0, most).map((s) => h("li", { key: s.id },
			h("span", { class: "grow" }, browser(s.userAgent), s.current ? [" ", h("span", { class: "badge good" }, t("sessions.current"))] : null, h("span", { class: "block muted small", title: visible(s.userAgent) }, visible(s.ipAddress), " · ", t("sessions.begun"), " ", age(s.signedInAt), s.refreshedAt ? [" · ", t("sessions.seen"), " ", age(s.refreshedAt)] : null)),
			o.end && !s.current ? button({ label: t("sessions.end"), kind: "small", onclick: () => attempt(async () => { await o.end?.(s); o.reload(); }, t("sessions.ended")) }) : null))),
		sorted.length > most ? h("p", { class: "muted small" }, t("sessions.more", { count: sorted.length - most })) : null,
		o.end && all.length > 0 ? h("div", { class: "row" }, button({ label: t("sessions.endAll"), kind: "danger", onclick: () => confirm({ title: t("sessions.endAll"), text: h("p", null, t("sessions.endAll.text", { name: o.who, count: all.length })), label: t("sessions.endAll"), danger: true, act: async () => { await o.endAll(); if (o.ended) o.ended(); else o.reload(); } }) })) : null,
	);
}

/** browser names a program by its user agent. */
function browser(agent) {
	const name = /Edg\//.test(agent) ? "Edge" : /Firefox\//.test(agent) ? "Firefox" : /Chrome\//.test(agent) ? "Chrome" : /Safari\//.test(agent) ? "Safari" : /^orrery/i.test(agent) ? "orrery" : visible(agent || "–").slice(0, 40);
	const system = /Windows/.test(agent) ? "Windows" : /Android/.test(agent) ? "Android" : /iPhone|iPad/.test(agent) ? "iOS" : /Mac OS/.test(agent) ? "macOS" : /Linux/.test(agent) ? "Linux" : "";
	return system ? t("sessions.on", { name, system }) : name;
}
