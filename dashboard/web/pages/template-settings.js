// The settings of a template: its description, its variables, and its end.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import { go, link } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { changes } from "../parts/changes.js";
import { ask, confirm } from "../parts/dialog.js";
import { fieldChanges } from "../parts/actions.js";
import { badge, button, card, empty, failure, field, Resource, say } from "../parts/ui.js";

const types = ["STRING", "TEXT", "INT", "BOOL", "ENUM", "SECRET"];

/** Settings is the tab of the settings. */
export class Settings {
	constructor(page) {
		this.page = page;
		this.form = /** @type {any} */ (null);
		this.variables = /** @type {any} */ (null);
		this.scan = /** @type {any} */ (null);
		this.layers = /** @type {any} */ (null);
		this.synced = /** @type {any} */ (null);
		this.list = /** @type {any[] | null} */ (null);
		this.state = { busy: false, error: /** @type {any} */ (null), theirs: /** @type {any} */ (null) };
		this.listState = { busy: false, error: /** @type {any} */ (null) };
	}

	reload() {
		this.variables?.reload();
		this.scan?.reload();
	}

	view() {
		const x = this.page.head.data;
		this.variables ??= new Resource(async () => {
			const answer = await api.get(this.page.base + "/variables", {}, { raw: true });
			return { list: await answer.json(), etag: answer.headers.get("ETag") };
		});
		this.scan ??= new Resource(() => api.get(this.page.base + "/variables/scan"));
		this.layers ??= new Resource(() => api.get(this.page.base + "/inheritance"));
		return h("div", { class: "page" }, x ? this.about(x) : null, this.showVariables(), h("div", { class: "grid wide" }, this.showLayers(), this.showNodes()), this.showEnd());
	}

	about(x) {
		const may = allowed("templates.update");
		const form = (this.form ??= { description: x.description, platform: x.platform, etag: x.$etag });
		const s = this.state, same = form.description === x.description && form.platform === x.platform;
		const save = async (ev) => {
			ev?.preventDefault();
			s.busy = true;
			s.error = null;
			s.theirs = null;
			redraw();
			try {
				const before = { description: x.description, platform: x.platform };
				const next = await this.patch(form, form.etag);
				this.page.head.data = next;
				this.form = null;
				say(t("template.saved"), { undo: async () => { this.page.head.data = await this.patch(before, next.$etag); this.form = null; } });
			} catch (err) {
				if (err.status === 412) s.theirs = await api.get(this.page.base).catch(() => null);
				if (!s.theirs) s.error = err;
			}
			s.busy = false;
			redraw();
		};
		return card(t("template.about"), null, h("form", { class: "form", onsubmit: save },
			field({ label: t("templates.description"), name: "description", value: form.description, readOnly: !may, maxlength: 2048, oninput: (v) => { form.description = v; } }),
			field({ label: t("templates.platform"), name: "platform", value: form.platform, readOnly: !may, maxlength: 64, hint: t("templates.platform.hint"), oninput: (v) => { form.platform = v; } }),
			s.theirs ? h("div", { class: "notice warn full", role: "alert" }, h("p", null, h("strong", null, t("failure.412"))), fieldChanges(["description", "platform"].filter((k) => s.theirs[k] !== form[k]).map((k) => ({ field: t("templates." + k), from: s.theirs[k], to: form[k] }))), h("div", { class: "row" }, button({ label: t("template.keepMine"), onclick: () => { form.etag = s.theirs.$etag; return save(); } }), button({ label: t("template.takeTheirs"), onclick: () => { this.page.head.data = s.theirs; this.form = null; s.theirs = null; } }))) : null,
			s.error ? h("div", { class: "full" }, failure(s.error)) : null,
			may ? h("div", { class: "row full" }, button({ label: t("action.save"), kind: "primary", type: "submit", busy: s.busy, disabled: same, onclick: undefined })) : null,
		));
	}

	patch(form, etag) {
		return api.request("PATCH", this.page.base, { body: { description: form.description, platform: form.platform }, ifMatch: etag });
	}

	showVariables() {
		const may = allowed("templates.update");
		return card(t("variables.title"), { actions: may ? button({ label: t("variables.add"), icon: "plus", onclick: () => this.edit(-1) }) : null },
			h("p", { class: "muted" }, t("variables.about")),
			this.variables.show((v) => {
				const list = this.list ?? v.list;
				const missing = (this.scan.data ?? []).filter((p) => !p.builtIn && !list.some((x) => x.key === p.key));
				return h("div", { class: "page" },
					list.length === 0 ? h("p", { class: "muted" }, t("variables.none")) : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("variables.title") }, h("table", null, h("thead", null, h("tr", null, ["key", "type", "default", "scope", "description"].map((k) => h("th", { scope: "col" }, t("variables." + k))), may ? h("th", { scope: "col" }, h("span", { class: "hidden" }, t("variables.actions"))) : null)), h("tbody", null, list.map((x, i) => h("tr", { key: x.key }, h("th", { scope: "row", class: "mono" }, visible(x.key), x.required ? h("span", { class: "muted", title: t("variables.required") }, " *") : null), h("td", null, x.type), h("td", { class: "mono" }, visible(x.defaultValue ?? "–")), h("td", null, x.scope), h("td", null, visible(x.description)), may ? h("td", null, h("span", { class: "row" }, button({ label: t("action.edit"), title: t("variables.edit", { key: x.key }), kind: "small", onclick: () => this.edit(i) }), button({ label: t("action.delete"), title: t("variables.delete", { key: x.key }), kind: "small", onclick: () => { this.list = list.filter((_, n) => n !== i); } }))) : null))))),
					missing.length > 0 ? h("div", { class: "notice warn" }, h("p", null, t("variables.missing", { count: missing.length })), h("ul", null, missing.slice(0, 20).map((p) => h("li", null, h("span", { class: "mono" }, visible(p.key)), " · ", (p.files ?? []).slice(0, 3).map((f, i) => [i > 0 ? ", " : "", h("a", { href: link(["templates", this.page.name], { path: f.path, line: f.line }) }, visible(f.path) + ":" + f.line)]), may ? [" ", button({ label: t("variables.define"), kind: "small", onclick: () => this.edit(-1, p.key) })] : null)))) : null,
					this.listState.error ? failure(this.listState.error) : null,
					this.list ? h("div", { class: "row" }, button({ label: t("variables.save"), kind: "primary", onclick: () => this.saveVariables(v) }), button({ label: t("content.discard"), onclick: () => { this.list = null; } }), h("span", { class: "muted small" }, t("variables.unsaved"))) : null,
				);
			}),
		);
	}

	saveVariables(v) {
		const state = { message: "" };
		const put = (dryRun) => api.request("PUT", this.page.base + "/variables", { body: this.list, query: { message: state.message || undefined }, ifMatch: v.etag ?? undefined, dryRun });
		return confirm({ title: t("variables.save"), label: t("content.publish"), text: h("div", { class: "page" }, fieldChanges(listDiff(v.list, this.list)), h("p", { class: "muted" }, t("content.publish.text"))), fields: () => field({ label: t("content.message"), name: "message", value: state.message, hint: t("content.message.hint"), oninput: (m) => { state.message = m; } }), preview: () => put(true), show: (x) => h("p", null, t("variables.version", { hash: x.hash.slice(0, 8) }), x.files.length ? changes(x.files, { scope: "v" }) : null), act: async () => {
			await put(false);
			this.list = null;
			this.page.changed();
			say(t("variables.saved"));
		} });
	}

	edit(index, key = "") {
		const list = this.list ?? this.variables.data.list;
		const x = index < 0 ? { key, type: "STRING", defaultValue: null, required: false, validation: {}, scope: "GROUP", visibility: "", description: "" } : structuredClone(list[index]);
		const rule = (x.validation ??= {});
		let hasDefault = x.defaultValue !== null && x.defaultValue !== undefined;
		const optional = (v) => (v === "" ? undefined : Number(v));
		return ask(index < 0 ? t("variables.add") : t("variables.edit", { key: x.key }), (close) => h(
			"form",
			{ class: "dialog-body", onsubmit: (ev) => {
				ev.preventDefault();
				x.defaultValue = hasDefault ? (x.defaultValue ?? "") : null;
				for (const k of Object.keys(rule)) if (rule[k] === undefined || rule[k] === "" || rule[k]?.length === 0) delete rule[k];
				this.list = index < 0 ? [...list, x] : list.map((old, i) => (i === index ? x : old));
				close(true);
			} },
			h("div", { class: "form" },
				field({ label: t("variables.key"), name: "variable-key", value: x.key, required: true, hint: t("variables.key.hint"), oninput: (v) => { x.key = v; } }),
				field({ label: t("variables.type"), name: "variable-type", value: x.type, options: [...new Set([...types, x.type])].map((v) => [v, v]), oninput: (v) => { x.type = v; } }),
				field({ label: t("variables.hasDefault"), name: "variable-has", type: "checkbox", value: hasDefault, oninput: (v) => { hasDefault = v; } }),
				hasDefault ? field({ label: t("variables.default"), name: "variable-default", rows: x.type === "TEXT" ? 5 : undefined, value: x.defaultValue ?? "", oninput: (v) => { x.defaultValue = v; } }) : null,
				field({ label: t("variables.required"), name: "variable-required", type: "checkbox", value: x.required, oninput: (v) => { x.required = v; } }),
				field({ label: t("variables.scope"), name: "variable-scope", value: x.scope, options: [...new Set(["GROUP", "INSTANCE", "TEMPLATE", x.scope])].map((v) => [v, v]), oninput: (v) => { x.scope = v; } }),
				field({ label: t("variables.visibility"), name: "variable-visibility", value: x.visibility ?? "", options: ["", "OPERATOR", "ADMIN", "SECRET"].map((v) => [v, t("variables.visibility." + (v || "ALL"))]), hint: t("variables.visibility.hint"), oninput: (v) => { x.visibility = v; } }),
				x.type === "ENUM" ? field({ label: t("variables.values"), name: "variable-values", value: (rule.enumValues ?? []).join(", "), oninput: (v) => { rule.enumValues = v.split(",").map((s) => s.trim()).filter(Boolean); } }) : null,
				x.type === "INT" ? [field({ label: t("variables.min"), name: "variable-min", type: "number", value: rule.min ?? "", oninput: (v) => { rule.min = optional(v); } }), field({ label: t("variables.max"), name: "variable-max", type: "number", value: rule.max ?? "", oninput: (v) => { rule.max = optional(v); } })] : null,
				x.type === "STRING" ? field({ label: t("variables.regex"), name: "variable-regex", value: rule.regex ?? "", oninput: (v) => { rule.regex = v; } }) : null,
				h("div", { class: "full" }, field({ label: t("variables.description"), name: "variable-description", value: x.description, oninput: (v) => { x.description = v; } })),
			),
			h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: t("variables.take"), kind: "primary", type: "submit", onclick: undefined })),
		));
	}

	showLayers() {
		return card(t("template.layers"), null, h("p", { class: "muted" }, t("template.layers.text")), this.layers.show((list) => h("ol", { class: "layers" }, list.map((l) => h("li", { key: l.name }, l.exists && l.name !== this.page.name ? h("a", { href: link(["templates", l.name]) }, visible(l.name)) : h("span", { class: l.exists ? "" : "muted" }, visible(l.name)), l.exists ? null : h("span", { class: "muted small" }, " · " + t("template.layers.absent")))))));
	}

	showNodes() {
		if (!allowed("templates.update")) return null;
		const post = (dryRun) => api.request("POST", "/api/v1/templates/sync", { body: { pattern: this.page.name }, dryRun });
		const show = (x) => h("div", null, x.message ? h("p", null, visible(x.message)) : null, h("ul", { class: "plain" }, (x.nodes ?? []).map((n) => h("li", { key: n.node }, h("span", { class: "grow" }, visible(n.node)), n.error ? h("span", null, visible(n.error)) : h("span", { class: "muted small" }, bytes(n.bytes)), n.status === "DRY_RUN" ? null : badge(n.status)))));
		return card(t("template.nodes"), null, h("p", { class: "muted" }, t("template.nodes.text")), this.synced ? show(this.synced) : null, h("div", { class: "row" }, button({ label: t("template.nodes.do"), onclick: () => confirm({ title: t("template.nodes"), label: t("template.nodes.do"), preview: () => post(true), show, act: async () => { this.synced = await post(false); say(t("template.nodes.done")); } }) })));
	}

	showEnd() {
		if (!allowed("templates.delete")) return null;
		const del = (dryRun) => api.request("DELETE", this.page.base, { dryRun, ifMatch: this.page.head.data?.$etag });
		return card(t("template.delete"), null, h("p", { class: "muted" }, t("template.delete.text")), h("div", { class: "row" }, button({ label: t("template.delete"), kind: "danger", onclick: () => confirm({ title: t("template.delete"), text: h("p", null, t("template.delete.text")), label: t("action.delete"), danger: true, typed: this.page.name, preview: () => del(true), act: async () => {
			await del(false);
			say(t("template.deleted"));
			go(["templates"]);
		} }) })));
	}
}

/** listDiff returns the fields that differ between two lists of variables. */
function listDiff(old, next) {
	const out = [];
	for (const x of next) {
		const before = old.find((o) => o.key === x.key);
		if (!before) out.push({ field: x.key, from: null, to: x });
		else for (const k of Object.keys(x)) if (JSON.stringify(before[k]) !== JSON.stringify(x[k])) out.push({ field: x.key + "." + k, from: before[k], to: x[k] });
	}
	for (const o of old) if (!next.some((x) => x.key === o.key)) out.push({ field: o.key, from: o, to: null });
	return out;
}
