// Crashes: how many over time, what they have in common, and each of them.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { duration, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { Chart } from "../parts/chart.js";
import { causeOf } from "../parts/describe.js";
import { age, button, card, empty, heading, Resource } from "../parts/ui.js";

const windows = ["1h", "24h", "168h"];

export default class Crashes {
	constructor() {
		const q = () => Object.fromEntries(route().query);
		this.list = new Resource(() => api.get("/api/v1/crashes", { since: q().since || "24h", group: q().group, node: q().node, classification: q().classification, signature: q().signature, pageSize: 200 }));
		this.trends = new Resource(() => api.get("/api/v1/crashes/trends", { since: q().since || "24h", group: q().group }));
		this.end = live.subscribe((e) => {
			if (e.type === "INSTANCE_CRASHED") this.list.reload(), this.trends.reload();
		});
	}

	removed() {
		this.end();
	}

	filter(changes) {
		setQuery(changes);
		this.list.reload();
		this.trends.reload();
	}

	view() {
		const q = route().query, since = q.get("since") || "24h";
		const groups = [...live.groups.keys()].sort();
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.crashes")),
			h(
				"div",
				{ class: "filters" },
				h("div", { class: "row", role: "group", "aria-label": t("crashes.window") }, windows.map((w) => button({ label: t("crashes." + w), kind: "small", pressed: w === since, onclick: () => this.filter({ since: w }) }))),
				h("select", { "aria-label": t("instances.group"), value: q.get("group") ?? "", onchange: (ev) => this.filter({ group: ev.target.value }) }, h("option", { value: "" }, t("crashes.anyGroup")), groups.map((g) => h("option", { value: g, selected: g === q.get("group") }, g))),
				["classification", "signature", "node"].filter((k) => q.get(k)).map((k) => button({ label: t("crashes.only." + k, { value: visible(q.get(k)).slice(0, 24) }), icon: "close", kind: "small", onclick: () => this.filter({ [k]: "" }) })),
			),
			this.trends.show((d) => card(t("crashes.trend", { count: d.total }), null, h(Chart, { label: t("nav.crashes"), height: 120, from: Date.parse(d.windowStart), step: d.bucketSeconds * 1000, series: [{ name: t("nav.crashes"), values: d.buckets.map((b) => b.count), color: 5 }] }), h("div", { class: "row" }, Object.entries(d.totalsByClassification).map(([k, n]) => button({ label: visible(k) + " · " + number(n), kind: "small", onclick: () => this.filter({ classification: k }) }))))),
			this.list.show((p) => (p.data.length === 0 ? empty(t("crashes.none"), t("crashes.none.text")) : [this.causes(p.data), this.each(p.data)])),
		);
	}

	/** causes draws crashes with the same fingerprint as one. */
	causes(list) {
		const by = new Map();
		for (const c of list) {
			const known = by.get(c.signature) ?? { first: c, count: 0, nodes: new Set(), groups: new Set() };
			known.count++;
			known.nodes.add(c.nodeId ?? c.node);
			known.groups.add(c.group);
			by.set(c.signature, known);
		}
		const causes = [...by].sort((a, b) => b[1].count - a[1].count).slice(0, 10);
		return card(t("crashes.causes"), null, h("ul", { class: "plain" }, causes.map(([signature, x]) => h("li", { key: signature }, h("strong", { class: "nowrap" }, number(x.count) + " ×"), h("button", { type: "button", class: "link grow", onclick: () => this.filter({ signature }) }, causeOf(x.first)), h("span", { class: "muted small" }, t("crashes.where", { nodes: [...x.nodes].map(visible).join(", "), groups: [...x.groups].map(visible).join(", ") }))))));
	}

	each(list) {
		return card(t("crashes.all"), null, h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, [t("crashes.when"), t("crashes.instance"), t("crashes.cause"), t("crashes.exit"), t("instances.node"), t("crashes.ran")].map((x) => h("th", null, x)))), h("tbody", null, list.map((c) => h("tr", { key: c.id }, h("td", { class: "nowrap" }, age(c.crashedAt)), h("td", null, h("a", { href: link(["instances", c.uid]) }, visible(c.instanceId))), h("td", null, h("a", { href: link(["crashes", c.id]) }, causeOf(c))), h("td", null, c.exitCode ?? visible(c.signal || "–")), h("td", null, h("a", { href: link(["nodes", c.nodeId ?? c.node]) }, visible(c.nodeId ?? c.node))), h("td", { class: "nowrap" }, duration(c.uptimeMs))))))));
	}
}
