// Tokens that Orrery makes itself: those of instances, and the keys that sign logins.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link, route, setQuery } from "../core/router.js";
import { allowed } from "../core/session.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { changed, reloadOn } from "./follow.js";
import { List } from "./list.js";
import { age, button, card, empty, facts, Resource, say } from "./ui.js";

/** SigningKeys shows the keys of login tokens. */
export class SigningKeys {
	constructor() {
		this.keys = new Resource(() => api.get("/api/v1/auth/keys"));
		this.end = reloadOn(changed("signing-keys"), () => this.keys.reload());
	}

	removed() {
		this.end();
	}

	view() {
		return card(t("keys.title"), null, h("p", { class: "muted" }, t("keys.text")), this.keys.show((k) => h("div", { class: "page" },
			facts([t("keys.current"), h("code", null, k.current)], [t("users.created"), age(k.createdAt)], [t("keys.previous"), k.previous ? h("code", null, k.previous) : "–"]),
			h("div", { class: "row" }, button({ label: t("keys.rotate"), onclick: () => confirm({ title: t("keys.rotate"), text: h("div", { class: "page tight" }, h("p", null, t("keys.rotate.text")), k.previous ? h("p", null, t("keys.rotate.previous", { key: k.previous })) : null), label: t("keys.rotate"), danger: true, act: async () => {
				await api.post("/api/v1/auth/keys/rotate");
				this.keys.reload();
				say(t("keys.rotated"));
			} }) })))));
	}
}

/** InstanceTokens lists the tokens of instances, one row for each instance. */
export class InstanceTokens {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/workloads/credentials"));
		this.end = reloadOn((e) => e.type === "INSTANCE_REMOVED" || (e.type === "INSTANCE_STATE_CHANGED" && e.newState === "STARTING"), () => this.list.reload());
	}

	removed() {
		this.end();
	}

	view() {
		const q = route().query.get("q") ?? "";
		return card(t("workloads.title"), null, h("p", { class: "muted" }, t("workloads.text")), this.list.show((all) => {
			if (all.length === 0) return h("p", { class: "muted" }, t("tokens.none"));
			const rows = [...Map.groupBy(all, (c) => c.uid)].map(([uid, list]) => ({ uid, id: list[0].instanceId, list })).filter((r) => (r.id + " " + r.uid).toLowerCase().includes(q.toLowerCase()));
			const last = (r, key) => r.list.map((c) => c[key]).filter(Boolean).sort().at(-1);
			const columns = [
				{ id: "instance", label: t("workloads.instance"), width: "minmax(8rem,1.5fr)", cell: (r) => h("a", { href: link(["instances", r.uid]) }, visible(r.id)) },
				{ id: "tokens", label: t("users.tab.tokens"), width: "minmax(9rem,1.5fr)", wide: true, cell: (r) => h("span", { class: "mono small" }, r.list.map((c) => c.tokenId).join(" ")) },
				{ id: "issued", label: t("workloads.issued"), width: "8rem", cell: (r) => age(last(r, "issuedAt")) },
				{ id: "expires", label: t("tokens.expires"), width: "minmax(7rem,1fr)", wide: true, cell: (r) => (r.list.some((c) => !c.expiresAt) ? t("workloads.lives") : age(last(r, "expiresAt"))) },
				{ id: "actions", label: t("groups.actions"), width: "8rem", align: "right", cell: (r) => button({ label: t("tokens.revoke"), title: t("tokens.revoke.name", { name: r.id }), kind: "small danger", needs: "tokens.revoke", onclick: () => this.revoke(r) }) },
			];
			return h("div", { class: "page" },
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: q, oninput: (ev) => setQuery({ q: ev.target.value }) }), h("span", { class: "muted small" }, t("workloads.count", { count: rows.length }))),
				rows.length === 0 ? empty(t("list.none"), t("list.none.text")) : h(List, { rows, columns, id: (r) => r.uid, label: t("workloads.title") }));
		}));
	}

	revoke(r) {
		return confirm({ title: t("tokens.revoke.name", { name: visible(r.id) }), text: h("div", { class: "page tight" }, h("p", null, t("workloads.revoke.text", { count: r.list.length })), h("p", null, t("workloads.restart"))), label: t("tokens.revoke"), danger: true, act: async () => {
			const answer = await api.del(api.url`/api/v1/workloads/credentials/instances/${r.uid}`);
			this.list.reload();
			say(t("workloads.revoked", { count: answer.revokedCredentials, name: visible(r.id) }));
		} });
	}
}

/** ownTokens draws what of these the reader may see. */
export function ownTokens() {
	return [allowed("system.settings") ? h(SigningKeys, { key: "keys" }) : null, h(InstanceTokens, { key: "workloads" })];
}
