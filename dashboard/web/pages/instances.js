// All instances: filter, sort, select and act on many.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { allowed } from "../core/session.js";
import { duration, mib, number, visible } from "../core/format.js";
import * as api from "../core/api.js";
import { t } from "../core/text.js";
import { List, sorted } from "../parts/list.js";
import { badge, button, empty, heading, loading } from "../parts/ui.js";
import { actOnInstances } from "../parts/actions.js";

const columns = [
	{ id: "name", label: "instances.name", width: "minmax(8rem,1.4fr)", cell: (i) => visible(i.id), sort: (i) => i.id },
	{ id: "state", label: "instances.state", width: "8.5rem", cell: (i) => badge(live.stateOf(i), i.message), sort: (i) => i.state },
	{ id: "group", label: "instances.group", width: "minmax(6rem,1fr)", cell: (i) => h("a", { href: link(["groups", i.group]) }, visible(i.group)), sort: (i) => i.group, wide: true },
	{ id: "node", label: "instances.node", width: "minmax(6rem,1fr)", cell: (i) => (i.node ? h("a", { href: link(["nodes", i.node]) }, visible(i.node)) : "–"), sort: (i) => i.node },
	{ id: "port", label: "instances.port", width: "4.5rem", align: "right", cell: (i) => i.port || "–", sort: (i) => i.port, wide: true },
	{ id: "players", label: "instances.players", width: "5.5rem", align: "right", cell: (i) => (i.playerCount === null || i.playerCount === undefined ? "–" : i.playerCount + (i.maxPlayers ? " / " + i.maxPlayers : "")), sort: (i) => i.playerCount },
	{ id: "memory", label: "instances.memory", width: "9rem", align: "right", cell: (i) => (i.usedMemoryMb ? mib(i.usedMemoryMb) + " / " : "") + mib(i.memoryMb), sort: (i) => i.usedMemoryMb ?? 0, wide: true },
	{ id: "uptime", label: "instances.uptime", width: "6.5rem", align: "right", cell: (i) => uptime(i), sort: (i) => (i.startedAt ? -Date.parse(i.startedAt) : null), wide: true },
	{ id: "restarts", label: "instances.restarts", width: "5rem", align: "right", cell: (i) => number(i.restarts ?? 0), sort: (i) => i.restarts ?? 0, wide: true },
];

/** uptime returns how long an instance has run. */
export function uptime(i) {
	if (!i.startedAt) return "–";
	return duration((i.finishedAt ? Date.parse(i.finishedAt) : api.now()) - Date.parse(i.startedAt));
}

/** instanceColumns returns the columns of a list of instances, without some. */
export function instanceColumns(without = []) {
	return columns.filter((c) => !without.includes(c.id)).map((c) => ({ ...c, label: t(c.label) }));
}

/** filtered returns the instances that match, in order. */
export const filtered = () => live.derived(["instances"], (text, state, group, node, column, descending) => {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	const rows = [];
	for (const i of live.instances.values()) {
		if (state && live.stateOf(i) !== state) continue;
		if (group && i.group !== group) continue;
		if (node && i.node !== node) continue;
		if (words.length) {
			const all = (i.id + " " + i.uid + " " + i.node + " " + i.port + " " + i.state).toLowerCase();
			if (!words.every((w) => all.includes(w))) continue;
		}
		rows.push(i);
	}
	return sorted(rows, columns, { column, descending });
});

/**
 * Instances draws the instances that match a filter. attrs: group or node limit it, without leaves
 * out columns.
 */
export class Instances {
	constructor() {
		this.rows = filtered();
		this.selected = new Set();
	}

	view(a) {
		const q = route().query;
		const sort = { column: q.get("sort") ?? "name", descending: q.get("order") === "desc" };
		const state = q.get("state") ?? "", text = q.get("q") ?? "";
		const rows = this.rows(text, state, a.group ?? q.get("group") ?? "", a.node ?? q.get("node") ?? "", sort.column, sort.descending);
		for (const uid of this.selected) if (!live.instances.has(uid)) this.selected.delete(uid);
		const states = ["RUNNING", "SCHEDULED", "PREPARING", "STARTING", "DRAINING", "STOPPING", "STOPPED", "SLEEPING", "CRASHED"];
		const ids = [...this.selected];
		const act = (action) => button({ label: t("instances." + action), kind: action === "stop" || action === "kill" || action === "delete" ? "danger small" : "small", needs: action === "start" ? "groups.start" : action === "delete" ? "instances.delete" : "instances.stop", onclick: async () => { if (await actOnInstances(action, ids)) this.selected.clear(); } });
		if (!live.state.loaded) return loading();
		return h(
			"div",
			{ class: "page" },
			h(
				"div",
				{ class: "filters" },
				h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: text, oninput: (ev) => setQuery({ q: ev.target.value }) }),
				h("select", { "aria-label": t("instances.state"), value: state, onchange: (ev) => setQuery({ state: ev.target.value }) }, h("option", { value: "" }, t("instances.anyState")), states.map((s) => h("option", { value: s, selected: s === state }, t("state." + s)))),
				h("span", { class: "muted" }, t("instances.count", { count: rows.length })),
				ids.length > 1 && allowed("instances.console") ? h("a", { class: "button small", href: link(["console"], { show: ids.slice(0, 4).map((u) => live.instances.get(u)?.id).join(",") }) }, t("instances.consoles")) : null,
			),
			h(List, { rows, columns: instanceColumns(a.without), id: (i) => i.uid, href: (i) => link(["instances", i.uid]), selected: allowed("instances.stop") || allowed("groups.start") ? this.selected : undefined, sort, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.instances"), none: live.instances.size && (text || state) ? empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "", state: "" }) })) : empty(t("instances.none"), t("instances.none.text")) }),
			ids.length ? h("div", { class: "bulk", role: "region", "aria-label": t("list.selected", { count: ids.length }) }, h("strong", null, t("list.selected", { count: ids.length })), h("span", { class: "grow" }), act("start"), act("restart"), act("stop"), act("kill"), act("delete"), button({ label: t("action.close"), kind: "quiet small", onclick: () => this.selected.clear() })) : null,
		);
	}
}

export default class InstancesPage {
	view() {
		return h("div", { class: "page" }, heading(t("nav.instances")), h(Instances, {}));
	}
}
