// Shares: texts behind a link, and who can still read them.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { link, route, setQuery } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, time, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "../parts/dialog.js";
import { shareButton, shareLink } from "../parts/share.js";
import { copy, saveText } from "../parts/transfer.js";
import { age, attempt, button, card, empty, facts, field, Resource, say } from "../parts/ui.js";

const kinds = ["CRASH", "CONTROLLER_LOGS", "DAEMON_LOGS", "DIAGNOSTICS", "INSTANCE_CONSOLE"];
const pathOf = (id) => api.url`/api/v1/shares/${id}`;
const stateOf = (s) => (s.revocable ? "open" : s.revokedAt ? "revoked" : s.readAt ? "read" : "expired");

/** Shares is the tab of shared texts. */
export class Shares {
	constructor() {
		this.all = false;
		this.list = new Resource(() => api.all("/api/v1/shares", { activeOnly: this.all ? undefined : true }));
		this.one = /** @type {any} */ (null);
	}

	view() {
		const q = route().query, kind = q.get("kind") ?? "", all = q.get("all") === "1", id = q.get("share") ?? "";
		if (all !== this.all) {
			this.all = all;
			this.list.reload();
		}
		return h("div", { class: "page" },
			h("div", { class: "row apart" }, h("p", { class: "muted" }, t("shares.about")), h("span", { class: "row" }, this.nodeLog(), allowed("system.settings") ? shareButton({ label: t("shares.diagnostics"), title: t("shares.diagnostics"), path: "/api/v1/system/diagnostics/share", once: false, done: () => this.list.reload() }) : null, button({ label: t("action.reload"), onclick: () => this.list.reload() }))),
			id ? this.showOne(id) : null,
			h("div", { class: "filters" },
				h("select", { "aria-label": t("shares.kind"), onchange: (ev) => setQuery({ kind: ev.target.value }) }, h("option", { value: "", selected: kind === "" }, t("filter.all")), kinds.map((k) => h("option", { value: k, selected: k === kind }, t("shares.kind." + k)))),
				h("label", { class: "check" }, h("input", { type: "checkbox", checked: all, onchange: (ev) => setQuery({ all: ev.target.checked ? "1" : "" }) }), h("span", null, t("shares.ended")))),
			this.list.show((list) => this.rows(list.filter((s) => !kind || s.kind === kind))));
	}

	/** nodeLog shares the log of an agent. */
	nodeLog() {
		const nodes = [...live.nodes.keys()].sort();
		if (!allowed("system.logs.view") || nodes.length === 0) return null;
		const f = { node: nodes[0] };
		return shareButton({ label: t("shares.nodeLog"), title: t("shares.nodeLog"), limit: 200, most: 1000, path: () => api.url`/api/v1/nodes/${f.node}/logs/share`, fields: () => field({ label: t("instances.node"), name: "share-node", value: f.node, options: nodes.map((n) => [n, n]), oninput: (v) => { f.node = v; } }), done: () => this.list.reload() });
	}

	rows(list) {
		if (list.length === 0) return empty(t("shares.none"), t("shares.none.text"));
		return card(null, null, h("ul", { class: "plain" }, list.map((s) => h("li", { key: s.id },
			h("span", { class: "grow" }, h("strong", null, t("shares.kind." + s.kind)), " ", resource(s), " ", h("span", { class: "badge " + (s.revocable ? "good" : "idle") }, t("shares.state." + stateOf(s))),
				h("span", { class: "block muted small" }, s.isPrivate ? t("shares.private") : t("shares.public"), s.burnAfterRead ? ", " + t("shares.once") : "", " · ", bytes(s.sizeBytes), " · ", t("shares.by"), ": ", visible(s.sharedByUser), " ", age(s.sharedAt), " · ", t("tokens.expires"), " ", s.expiresAt ? age(s.expiresAt) : t("tokens.never"))),
			s.revocable ? h("span", { class: "row" },
				button({ label: t("shares.copy"), kind: "small", onclick: () => copy(shareLink(s)) }),
				button({ label: t("shares.show"), kind: "small", onclick: () => setQuery({ share: s.id }) }),
				button({ label: t("tokens.revoke"), kind: "small danger", needs: "share.revoke", onclick: () => this.revoke(s) })) : null))));
	}

	/** showOne shows a share and, when it is asked for, its text: reading it can end it. */
	showOne(id) {
		if (this.one?.id !== id) this.one = { id, share: new Resource(() => api.get(pathOf(id))), text: null };
		const one = this.one;
		const close = button({ label: t("action.close"), icon: "close", hideLabel: true, kind: "quiet", onclick: () => setQuery({ share: "" }) });
		const read = () => attempt(async () => {
			const answer = await api.request("GET", api.url`/s/${id}/raw`, { raw: true });
			one.text = await answer.text();
			one.share.reload();
			this.list.reload();
		});
		return card(t("shares.one"), { key: id, actions: close }, one.share.show((s) => h("div", { class: "page" },
			facts([t("shares.kind"), t("shares.kind." + s.kind)], s.resourceId ? [t("shares.of"), resource(s)] : null, [t("shares.state"), t("shares.state." + stateOf(s))], [t("shares.by"), [visible(s.sharedByUser), " ", time(s.sharedAt)]], [t("tokens.expires"), s.expiresAt ? time(s.expiresAt) : t("tokens.never")], [t("shares.size"), bytes(s.sizeBytes)]),
			one.text !== null ? [h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": t("shares.text") }, visible(one.text)), h("div", { class: "row" }, button({ label: t("action.copy"), icon: "copy", onclick: () => copy(one.text) }), button({ label: t("action.download"), onclick: () => saveText(one.text, "orrery-" + s.kind.toLowerCase() + ".txt") }))]
				: s.revocable ? [s.burnAfterRead ? h("p", { class: "notice warn" }, t("shares.read.once")) : null, h("div", { class: "row" }, button({ label: t("shares.read"), kind: "primary", onclick: read }))]
				: h("p", { class: "muted" }, t("shares.over")))));
	}

	revoke(s) {
		return confirm({ title: t("shares.revoke"), text: h("p", null, t("shares.revoke.text")), label: t("tokens.revoke"), danger: true, act: async () => {
			await api.post(pathOf(s.id) + "/revoke");
			this.list.reload();
			if (this.one) this.one = null;
			say(t("shares.revoked"));
		} });
	}
}

/** resource links to what was shared. */
function resource(s) {
	const page = { CRASH: "crashes", DAEMON_LOGS: "nodes", INSTANCE_CONSOLE: "instances" }[s.kind];
	return page && s.resourceId ? h("a", { href: link([page, s.resourceId]) }, visible(s.resourceId)) : visible(s.resourceId);
}
