// Events as they happen, with filters.
import { h } from "../core/dom.js";
import * as live from "../core/live.js";
import { route, setQuery } from "../core/router.js";
import { t } from "../core/text.js";
import { describeEvent, eventTone } from "../parts/describe.js";
import { age, button, empty, heading } from "../parts/ui.js";
import { List } from "../parts/list.js";

const kinds = { instances: /^INSTANCE_/, groups: /^(GROUP_|CHOREOGRAPHY_|MAINTENANCE_|SCHEDULE_)/, nodes: /^NODE_/, deployments: /^DEPLOYMENT_/, players: /^PLAYER_/, other: /^(TEMPLATE_|NETWORK_|CLUSTER_|RESOURCE_)/ };

export default class Events {
	constructor() {
		/** held is the events on show while the list is paused. */
		this.held = /** @type {any[] | null} */ (null);
	}

	view() {
		const q = route().query, kind = q.get("kind") ?? "", text = (q.get("q") ?? "").toLowerCase();
		const all = this.held ?? live.recent;
		const rows = all.filter((e) => (!kind || (Object.hasOwn(kinds, kind) && kinds[kind].test(e.type))) && (!text || JSON.stringify(e).toLowerCase().includes(text)));
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.events"), { actions: [button({ label: t(this.held ? "events.resume" : "events.pause"), pressed: this.held !== null, onclick: () => { this.held = this.held ? null : [...live.recent]; } })] }),
			h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("events.filter"), value: q.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) }), h("select", { "aria-label": t("events.kind"), value: kind, onchange: (ev) => setQuery({ kind: ev.target.value }) }, h("option", { value: "" }, t("filter.all")), Object.keys(kinds).map((k) => h("option", { value: k, selected: k === kind }, t("events.kind." + k)))), this.held && live.recent.length ? h("span", { class: "muted" }, t("events.paused")) : null),
			h(List, { rows, columns: [
				{ id: "when", label: t("events.when"), width: "9rem", cell: (e) => age(e.timestamp) },
				{ id: "what", label: t("events.what"), width: "minmax(14rem,1fr)", cell: (e) => h("span", { class: "event" }, h("span", { class: "dot " + eventTone(e) }), " ", describeEvent(e)) },
				{ id: "type", label: t("events.type"), width: "18rem", cell: (e) => h("code", { class: "small" }, e.type), wide: true },
			], id: (e) => (e.$id ??= ++numbered), label: t("nav.events"), none: live.recent.length ? empty(t("list.none"), t("list.none.text")) : empty(t("overview.quiet"), t("overview.quiet.text")) }),
		);
	}
}

let numbered = 0;
