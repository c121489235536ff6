// The deployments of all groups, those in progress first.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { route, setQuery } from "../core/router.js";
import { t } from "../core/text.js";
import { deploymentCard } from "../parts/deployment.js";
import { empty, heading, Resource } from "../parts/ui.js";

export default class Deployments {
	constructor() {
		this.list = new Resource(() => api.get("/api/v1/deployments", { state: route().query.get("state"), pageSize: 100 }));
		this.end = live.subscribe((e) => {
			if (e.type.startsWith("DEPLOYMENT_")) this.list.reload();
		});
	}

	removed() {
		this.end();
	}

	view() {
		const state = route().query.get("state") ?? "";
		const reload = () => this.list.reload();
		const active = (d) => d.state === "IN_PROGRESS" || d.state === "PAUSED";
		return h(
			"div",
			{ class: "page" },
			heading(t("nav.deployments")),
			h("div", { class: "filters" }, h("select", { "aria-label": t("deployments.state"), value: state, onchange: (ev) => { setQuery({ state: ev.target.value }); reload(); } }, h("option", { value: "" }, t("deployments.any")), ["IN_PROGRESS", "PAUSED", "COMPLETED", "FAILED", "ROLLED_BACK", "CANCELLED"].map((s) => h("option", { value: s, selected: s === state }, t("state." + s))))),
			this.list.show((p) => (p.data.length === 0 ? empty(t("deployments.none"), t("deployments.none.text")) : [...p.data.filter(active), ...p.data.filter((d) => !active(d))].map((d) => deploymentCard(d, reload, true)))),
		);
	}
}
