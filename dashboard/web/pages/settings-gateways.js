// The settings that all gateways share: what is in effect, and its versions.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import { allowed } from "../core/session.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { confirm } from "../parts/dialog.js";
import { fieldChanges } from "../parts/actions.js";
import { sideBySide, textDiff } from "../parts/diff.js";
import { Editor } from "../parts/editor.js";
import { reloadOn } from "../parts/follow.js";
import { age, button, card, failure, field, Resource, say } from "../parts/ui.js";

/** leaves lists the values of nested objects by their keys with dots. */
function leaves(object, at = "", into = {}) {
	for (const [k, v] of Object.entries(object ?? {})) {
		const key = at ? at + "." + k : k;
		if (v !== null && typeof v === "object" && !Array.isArray(v)) leaves(v, key, into);
		else into[key] = v;
	}
	return into;
}

/** patchOf returns the keys to send so that old becomes next. null removes one. */
function patchOf(old, next) {
	const a = leaves(old), b = leaves(next), patch = {};
	for (const k of Object.keys(a)) if (!(k in b)) patch[k] = null;
	for (const k of Object.keys(b)) if (JSON.stringify(a[k]) !== JSON.stringify(b[k])) patch[k] = b[k];
	return patch;
}

const show = (v) => JSON.stringify(v, null, 2) + "\n";

/** Gateways is the tab of the settings of all gateways. */
export class Gateways {
	constructor() {
		this.config = new Resource(() => api.get("/api/v1/cluster/config"));
		this.versions = new Resource(() => api.get("/api/v1/cluster/config/versions"));
		this.patches = new Map();
		this.opened = new Set();
		this.edit = /** @type {any} */ (null);
		this.end = reloadOn((e) => e.type === "CLUSTER_CONFIG_CHANGED", () => this.reload());
	}

	removed() {
		this.end();
	}

	reload() {
		this.config.reload();
		this.versions.reload();
	}

	view() {
		return h("div", { class: "page" },
			this.config.show((c) => h("div", { class: "page" }, this.edit ? this.showEditor(c) : this.showEffective(c))),
			card(t("gateways.versions"), null, this.versions.show((v) => this.showVersions(v))),
		);
	}

	showEffective(c) {
		const own = leaves(c.patch), all = leaves(c.effective);
		return card(t("gateways.effective"), { actions: button({ label: t("gateways.edit"), needs: "cluster.config.write", onclick: () => { this.edit = { parent: c.activeVersion, base: c.patch, text: show(c.patch), reason: "", busy: false, error: null, theirs: null, serial: 0, editor: null }; } }) },
			h("p", { class: "muted" }, c.activeVersion === 0 ? t("gateways.none") : t("gateways.active", { version: c.activeVersion })),
			h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("gateways.effective") }, h("table", { class: "keys" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("gateways.setting")), h("th", { scope: "col" }, t("gateways.value")), h("th", { scope: "col" }, t("gateways.from")))), h("tbody", null, Object.keys(all).sort().map((k) => h("tr", { key: k }, h("th", { scope: "row", class: "mono" }, k), h("td", { class: "mono" }, visible(Array.isArray(all[k]) ? (all[k].length ? all[k].join(", ") : "–") : String(all[k]))), h("td", null, k in own ? h("span", { class: "tag" }, t("gateways.here")) : h("span", { class: "muted" }, t("gateways.own")))))))));
	}

	showEditor(c) {
		const e = this.edit;
		const read = () => {
			try {
				return JSON.parse(e.editor?.text() ?? e.text);
			} catch (err) {
				throw new api.Failure(400, "", t("gateways.json", { error: err.message }));
			}
		};
		const send = (patch, dryRun) => api.post("/api/v1/cluster/config", { parentVersion: e.parent, patch, reason: e.reason || undefined }, { dryRun });
		const save = async (ev) => {
			ev?.preventDefault();
			e.busy = true;
			e.error = null;
			e.theirs = null;
			redraw();
			try {
				const next = read(), patch = patchOf(e.base, next);
				if (Object.keys(patch).length === 0) throw new api.Failure(422, "", t("gateways.same"));
				const answer = await send(patch, true);
				e.busy = false;
				redraw();
				const before = c.activeVersion;
				await confirm({ title: t("gateways.save"), label: t("action.save"), text: fieldChanges(answer.diff), act: async () => {
					const made = await send(patch, false);
					this.edit = null;
					this.reload();
					say(t("gateways.saved", { version: made.version }), { undo: () => this.activate(before, t("gateways.undone", { version: made.version })) });
				} });
			} catch (err) {
				if (err.code === "PARENT_VERSION_STALE") {
					e.mine = e.editor?.text() ?? e.text;
					e.theirs = await api.get("/api/v1/cluster/config").catch(() => null);
				}
				if (!e.theirs) e.error = err;
			}
			e.busy = false;
			redraw();
		};
		return card(t("gateways.edit"), null, h("form", { class: "page", onsubmit: save },
			h("p", { class: "muted" }, t("gateways.edit.text")),
			h(Editor, { key: e.serial, ref: (ed, old) => { if (ed) e.editor = ed; else if (e.editor === old) e.editor = null; }, text: e.text, path: "settings.json", label: t("gateways.edit"), short: true, onsave: save }),
			field({ label: t("gateways.reason"), name: "reason", value: e.reason, oninput: (v) => { e.reason = v; } }),
			e.theirs ? h("div", { class: "notice warn", role: "alert" }, h("p", null, h("strong", null, t("failure.412"))), sideBySide({ old: show(e.theirs.patch), next: e.mine, oldLabel: t("gateways.theirs", { version: e.theirs.activeVersion }), nextLabel: t("gateways.mine") }), h("div", { class: "row" }, button({ label: t("form.keepMine"), onclick: () => { e.parent = e.theirs.activeVersion; e.base = e.theirs.patch; e.theirs = null; return save(); } }), button({ label: t("form.takeTheirs"), onclick: () => { Object.assign(e, { parent: e.theirs.activeVersion, base: e.theirs.patch, text: show(e.theirs.patch), theirs: null }); e.serial++; } }))) : null,
			e.error ? failure(e.error) : null,
			h("details", null, h("summary", null, t("gateways.keys")), h("p", { class: "mono small" }, Object.keys(leaves(c.effective)).sort().join(", "))),
			h("div", { class: "row" }, button({ label: t("gateways.review"), kind: "primary", type: "submit", busy: e.busy, onclick: undefined }), button({ label: t("action.cancel"), onclick: () => { this.edit = null; } })),
		));
	}

	/** patch returns the settings of a version, or where they will be. */
	patch(version) {
		if (!this.patches.has(version)) this.patches.set(version, new Resource(async () => (version === 0 ? {} : (await api.get(api.url`/api/v1/cluster/config/versions/${String(version)}`)).patch)));
		return this.patches.get(version);
	}

	showVersions(v) {
		if (v.versions.length === 0) return h("p", { class: "muted" }, t("gateways.none"));
		const one = (x) => {
			const open = this.opened.has(x.version), now = open ? this.patch(x.version) : null, before = open ? this.patch(x.parentVersion) : null;
			return h("li", { key: x.version, class: "version" },
				h("span", { class: "grow" }, h("strong", null, t("gateways.version", { version: x.version })), x.isActive ? [" ", h("span", { class: "badge good" }, t("gateways.isActive"))] : null, x.reason ? " " + visible(x.reason) : "", h("span", { class: "block muted small" }, visible(x.mutator), " · ", age(x.mutatedAt), " · ", t("gateways.parent", { version: x.parentVersion }))),
				h("span", { class: "row" }, h("button", { type: "button", class: "button small", "aria-expanded": String(open), onclick: () => { if (open) this.opened.delete(x.version); else this.opened.add(x.version); } }, t("gateways.difference")), x.isActive ? null : button({ label: t("versions.rollback"), title: t("gateways.rollback", { version: x.version }), kind: "small", needs: "cluster.config.write", onclick: () => this.rollback(x.version, v.activeVersion) })),
				open ? h("div", { class: "version-diff" }, now.show((next) => before.show((old) => textDiff(show(old), show(next), t("gateways.difference"))))) : null);
		};
		return h("div", { class: "page" }, h("ul", { class: "plain" }, v.versions.map(one)), v.activeVersion !== 0 ? h("div", { class: "row" }, button({ label: t("gateways.rollback", { version: 0 }), kind: "danger", needs: "cluster.config.write", onclick: () => this.rollback(0, v.activeVersion) })) : null);
	}

	rollback(version, active) {
		return confirm({ title: t("gateways.rollback", { version }), text: h("p", null, version === 0 ? t("gateways.rollback.none") : t("gateways.rollback.text")), label: t("versions.rollback"), danger: true, preview: () => api.request("POST", "/api/v1/cluster/config/rollback", { body: { targetVersion: version }, dryRun: true }), show: (x) => fieldChanges(x.diff), act: async () => {
			await api.post("/api/v1/cluster/config/rollback", { targetVersion: version });
			this.reload();
			say(t("gateways.rolledBack", { version }), { undo: () => this.activate(active, "") });
		} });
	}

	async activate(version, reason) {
		if (!allowed("cluster.config.write")) return;
		try {
			await api.post("/api/v1/cluster/config/rollback", { targetVersion: version, reason: reason || undefined });
			say(t("gateways.rolledBack", { version }));
		} catch (err) {
			say(err.message, { tone: "bad" });
		}
		this.reload();
	}
}
