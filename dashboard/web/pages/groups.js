// All groups, and the way to make one.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { mib, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { List, sorted } from "../parts/list.js";
import { badge, button, empty, heading, loading } from "../parts/ui.js";
import { deploy, scale } from "../parts/actions.js";
import { newGroup } from "../parts/newgroup.js";

/** waiting is the groups with instances that no node takes. */
const waiting = live.derived(["instances"], () => new Set([...live.instances.values()].filter(live.waits).map((i) => i.group)));

/** groupState returns one word for how a group is. */
export function groupState(g) {
	if (g.crashLoop || g.paused) return "PAUSED";
	if (g.maintenance) return "MAINTENANCE";
	if (g.runningInstances < g.minInstances) return waiting(Math.floor(api.now() / 5000)).has(g.name) ? "WAITING" : "STARTING";
	return g.runningInstances > 0 ? "RUNNING" : "STOPPED";
}

const columns = [
	{ id: "name", label: "groups.name", width: "minmax(8rem,1.4fr)", cell: (g) => visible(g.name), sort: (g) => g.name },
	{ id: "state", label: "groups.state", width: "9rem", cell: (g) => badge(groupState(g), g.message || g.crashLoop?.message), sort: groupState },
	{ id: "instances", label: "groups.instances", width: "8rem", align: "right", cell: (g) => h("span", { title: t("groups.bounds", { min: g.minInstances, max: g.maxInstances || "∞" }) }, number(g.runningInstances), h("span", { class: "muted" }, " / " + g.minInstances + "–" + (g.maxInstances || "∞"))), sort: (g) => g.runningInstances },
	{ id: "players", label: "groups.players", width: "5.5rem", align: "right", cell: (g) => number(g.totalPlayers), sort: (g) => g.totalPlayers },
	{ id: "memory", label: "groups.memory", width: "6.5rem", align: "right", cell: (g) => mib(g.memoryMb), sort: (g) => g.memoryMb, wide: true },
	{ id: "templates", label: "groups.templates", width: "minmax(8rem,1.4fr)", cell: (g) => (g.templates?.length ? g.templates.map((n, i) => [i ? ", " : "", h("a", { href: link(["templates", n]) }, visible(n))]) : "–"), wide: true },
	{ id: "runtime", label: "groups.runtime", width: "5.5rem", cell: (g) => g.runtime + (g.static ? " · " + t("groups.static") : ""), sort: (g) => g.runtime, wide: true },
	{ id: "actions", label: "groups.actions", width: "12rem", align: "right", cell: (g) => h("span", { class: "row end" }, button({ label: t("groups.scale"), kind: "small", needs: "groups.update", group: g.name, disabled: g.scalingMode === "MANUAL", onclick: () => scale(g) }), button({ label: t("groups.deploy"), kind: "small", needs: "groups.update", group: g.name, onclick: () => deploy(g) })), wide: true },
];

const filtered = live.derived(["groups"], (text, column, descending) => {
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	return sorted([...live.groups.values()].filter((g) => words.every((w) => (g.name + " " + g.platform + " " + Object.entries(g.labels ?? {}).map(([k, v]) => k + "=" + v).join(" ") + " " + (g.templates ?? []).join(" ")).toLowerCase().includes(w))), columns, { column, descending });
});

export default class Groups {
	constructor() {
		if (route().query.get("new")) {
			setQuery({ new: "" });
			newGroup();
		}
	}

	view() {
		const q = route().query;
		if (q.get("new")) setTimeout(() => { setQuery({ new: "" }); newGroup(); });
		const sort = { column: q.get("sort") ?? "name", descending: q.get("order") === "desc" };
		const text = q.get("q") ?? "";
		const rows = filtered(text, sort.column, sort.descending);
		const create = () => button({ label: t("groups.new"), icon: "plus", kind: "primary", needs: "groups.create", onclick: () => newGroup() });
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.groups"), { actions: [create()] }),
			!live.state.loaded ? loading() : [
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("groups.filter"), value: text, oninput: (ev) => setQuery({ q: ev.target.value }) }), h("span", { class: "muted" }, t("groups.count", { count: rows.length }))),
				h(List, { rows, columns: columns.map((c) => ({ ...c, label: t(c.label) })), id: (g) => g.name, href: (g) => link(["groups", g.name]), sort, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.groups"), none: live.groups.size ? empty(t("list.none"), t("list.none.text")) : empty(t("groups.none"), t("begin.text"), create()) }),
			],
		);
	}
}
