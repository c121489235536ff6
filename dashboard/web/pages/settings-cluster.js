// The control plane: its processes, who controls what, and maintenance of all groups.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { allowed } from "../core/session.js";
import { number, time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { fieldChanges } from "../parts/actions.js";
import { reloadOn } from "../parts/follow.js";
import { askForm } from "../parts/form.js";
import { age, attempt, button, card, facts, field, Resource, say } from "../parts/ui.js";
import { saveText } from "../parts/transfer.js";

/** Cluster is the tab of the control plane. */
export class Cluster {
	constructor() {
		const view = allowed("cluster.view");
		this.cluster = view ? new Resource(() => api.get("/api/v1/cluster")) : null;
		this.members = view ? new Resource(() => api.get("/api/v1/cluster/members")) : null;
		this.leases = view ? new Resource(() => api.get("/api/v1/cluster/leases")) : null;
		this.maintenance = allowed("groups.view") ? new Resource(() => api.get("/api/v1/maintenance")) : null;
		this.settings = allowed("system.settings") ? new Resource(() => api.get("/api/v1/system/settings")) : null;
		this.end = reloadOn((e) => e.type === "MAINTENANCE_UPDATED", () => this.maintenance?.reload());
	}

	removed() {
		this.end();
	}

	view() {
		return h("div", { class: "page" },
			this.maintenance ? this.showMaintenance() : null,
			this.cluster ? card(t("cluster.title"), { actions: button({ label: t("action.reload"), onclick: () => { for (const r of [this.cluster, this.members, this.leases]) r?.reload(); } }) }, this.cluster.show((c) => facts([t("cluster.id"), h("span", { class: "mono small" }, c.clusterId)], [t("cluster.since"), age(c.createdAt)], [t("cluster.members"), number(c.memberCount)], [t("cluster.config"), c.activeConfigVersion || t("cluster.config.none")], this.settings?.data ? [t("cluster.replica"), visible(this.settings.data.replica)] : null, this.settings?.data ? [t("cluster.version"), visible(this.settings.data.version)] : null))) : null,
			this.members ? card(t("cluster.members"), null, this.members.show((m) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("cluster.members") }, h("table", null, h("thead", null, h("tr", null, ["service", "replica", "version", "address", "joined", "seen"].map((k) => h("th", { scope: "col" }, t("cluster." + k))))), h("tbody", null, m.members.map((x) => h("tr", { key: x.nodeId }, h("th", { scope: "row" }, visible(x.service)), h("td", null, visible(x.replica)), h("td", { class: "mono" }, visible(x.version)), h("td", { class: "mono" }, visible(x.url)), h("td", { class: "nowrap", title: time(x.joinedAt) }, age(x.joinedAt)), h("td", { class: "nowrap" }, age(x.lastSeen))))))))) : null,
			this.leases ? card(t("cluster.leases"), null, h("p", { class: "muted" }, t("cluster.leases.text")), this.leases.show((l) => this.showLeases(l.leases))) : null,
			this.settings ? card(t("cluster.diagnostics"), null, h("p", { class: "muted" }, t("cluster.diagnostics.text")), h("div", { class: "row" }, button({ label: t("cluster.diagnostics.do"), onclick: () => attempt(async () => { const d = await api.get("/api/v1/system/diagnostics"); saveText(JSON.stringify(d, null, 2), "orrery-diagnostics-" + new Date(api.now()).toISOString().slice(0, 19).replace(/:/g, "") + ".json"); }) }))) : null,
		);
	}

	showLeases(all) {
		const services = new Map();
		for (const l of all) {
			const holders = services.get(l.service) ?? services.set(l.service, new Map()).get(l.service);
			holders.set(l.holder, [...(holders.get(l.holder) ?? []), l]);
		}
		if (services.size === 0) return h("p", { class: "muted" }, t("cluster.leases.none"));
		return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("cluster.leases") }, h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("cluster.service")), h("th", { scope: "col" }, t("cluster.holder")), h("th", { scope: "col", class: "right" }, t("cluster.shards")), h("th", { scope: "col" }, t("cluster.numbers")))), h("tbody", null, [...services].flatMap(([service, holders]) => [...holders].map(([holder, list]) => h("tr", { key: service + holder }, h("th", { scope: "row" }, visible(service)), h("td", null, holder ? visible(holder) : h("span", { class: "badge bad" }, t("cluster.nobody"))), h("td", { class: "right" }, number(list.length)), h("td", { class: "mono small" }, ranges(list.map((l) => l.shard)))))))));
	}

	showMaintenance() {
		return card(t("maintenance.title"), null, this.maintenance?.show((m) => h("div", { class: "page" },
			h("p", null, m.enabled ? h("span", { class: "badge warn" }, t("maintenance.on")) : h("span", { class: "badge good" }, t("maintenance.off")), m.updatedBy ? h("span", { class: "muted small" }, " ", t("maintenance.by", { name: visible(m.updatedBy) }), " ", age(m.updatedAt)) : null),
			h("p", { class: "muted" }, t("maintenance.text")),
			m.message ? h("p", null, h("span", { class: "muted" }, t("maintenance.message") + ": "), visible(m.message)) : null,
			h("div", { class: "row" }, button({ label: m.enabled ? t("maintenance.end") : t("maintenance.begin"), kind: m.enabled ? "primary" : "danger", needs: "groups.update", onclick: () => this.setMaintenance() })))));
	}

	setMaintenance() {
		return attempt(async () => {
			const m = await api.get("/api/v1/maintenance");
			const f = { message: m.message, bypass: (m.bypass ?? []).join(", ") };
			let etag = m.$etag;
			const body = () => ({ enabled: !m.enabled, message: f.message, bypass: f.bypass.split(",").map((s) => s.trim()).filter(Boolean) });
			const put = (value, dryRun) => api.request("PUT", "/api/v1/maintenance", { body: value, dryRun, ifMatch: etag });
			await askForm({ title: m.enabled ? t("maintenance.end") : t("maintenance.begin"), label: m.enabled ? t("maintenance.end") : t("maintenance.begin"), danger: !m.enabled, preview: () => put(body(), true), show: (x) => fieldChanges(x.diff), mine: body, theirs: () => api.get("/api/v1/maintenance"), keepMine: (theirs) => { etag = theirs.$etag; },
				fields: () => h("div", { class: "page" }, h("p", null, t("maintenance.text")), field({ label: t("maintenance.message"), name: "maintenance-message", value: f.message, hint: t("maintenance.message.hint"), oninput: (v) => { f.message = v; } }), field({ label: t("maintenance.bypass"), name: "maintenance-bypass", value: f.bypass, hint: t("maintenance.bypass.hint"), oninput: (v) => { f.bypass = v; } })),
				act: async () => {
					await put(body(), false);
					this.maintenance?.reload();
					say(m.enabled ? t("maintenance.ended") : t("maintenance.begun"), { undo: () => attempt(async () => { etag = undefined; await put({ enabled: m.enabled, message: m.message, bypass: m.bypass }, false); this.maintenance?.reload(); }) });
				} });
		});
	}
}

/** ranges writes numbers as 0–3, 7. */
function ranges(list) {
	const out = [], n = [...list].sort((a, b) => a - b);
	for (let i = 0; i < n.length; ) {
		let j = i;
		while (j + 1 < n.length && n[j + 1] === n[j] + 1) j++;
		out.push(i === j ? String(n[i]) : n[i] + "–" + n[j]);
		i = j + 1;
	}
	return out.join(", ");
}
