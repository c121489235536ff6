// The templates, and the sources that they come from.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import { link, route, setQuery, go } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { ask, confirm } from "../parts/dialog.js";
import { changed, reloadOn } from "../parts/follow.js";
import { List, sorted } from "../parts/list.js";
import { age, attempt, badge, button, card, empty, failure, field, heading, Resource, say, tabs } from "../parts/ui.js";
import { dropZone } from "../parts/transfer.js";

export default class Templates {
	constructor() {
		this.list = new Resource(() => api.all("/api/v1/templates"));
		this.sources = new Resource(() => api.all("/api/v1/template-sources"));
		this.over = false;
		this.end = reloadOn((e) => e.type === "TEMPLATE_UPDATED" || changed("template", "template-source")(e), () => {
			this.list.reload();
			this.sources.reload();
		});
	}

	removed() {
		this.end();
	}

	view() {
		const tab = route().query.get("tab") === "sources" ? "sources" : "list";
		const zone = allowed("templates.create") ? dropZone((files) => files[0] && this.create(files[0].file), (over) => { this.over = over; }) : {};
		return h(
			"div",
			{ class: "page" + (this.over ? " dropping" : ""), ...zone },
			heading(t("nav.templates"), { under: h("p", { class: "muted" }, t("templates.about")), actions: [button({ label: t("templates.import"), needs: "templates.create", onclick: () => this.create(null, true) }), button({ label: t("templates.new"), icon: "plus", kind: "primary", needs: "templates.create", onclick: () => this.create() })] }),
			tabs([{ id: "list", label: t("nav.templates"), href: link(["templates"]) }, { id: "sources", label: t("templates.sources"), href: link(["templates"], { tab: "sources" }) }], tab),
			this.over ? h("p", { class: "notice info", role: "status" }, t("templates.drop")) : null,
			tab === "sources" ? this.showSources() : this.showList(),
		);
	}

	showList() {
		return this.list.show((all) => {
			const query = route().query, q = (query.get("q") ?? "").toLowerCase(), from = query.get("origin") ?? "";
			const origins = [...new Set(all.map((x) => x.origin))].sort();
			const columns = [
				{ id: "name", label: t("templates.name"), width: "minmax(12rem,2fr)", sort: (x) => x.name, cell: (x) => visible(x.name) },
				{ id: "files", label: t("templates.files"), width: "5rem", align: "right", wide: true, sort: (x) => x.files, cell: (x) => number(x.files) },
				{ id: "size", label: t("templates.size"), width: "6rem", align: "right", sort: (x) => x.sizeBytes, cell: (x) => bytes(x.sizeBytes) },
				{ id: "origin", label: t("templates.origin"), width: "9rem", sort: (x) => x.origin, cell: (x) => origin(x) },
				{ id: "version", label: t("templates.version"), width: "7rem", wide: true, cell: (x) => h("span", { class: "mono", title: x.hash }, x.hash.slice(0, 8)) },
				{ id: "updated", label: t("templates.updated"), width: "8rem", sort: (x) => Date.parse(x.updatedAt), cell: (x) => age(x.updatedAt) },
				{ id: "about", label: t("templates.description"), wide: true, cell: (x) => visible(x.description) },
			];
			const by = { column: query.get("sort") ?? "name", descending: query.get("order") === "desc" };
			const rows = sorted(all.filter((x) => (x.name + " " + x.description).toLowerCase().includes(q) && (!from || (x.origin || "-") === from)), columns, by);
			if (all.length === 0) return empty(t("templates.none"), t("templates.none.text"), button({ label: t("templates.new"), icon: "plus", kind: "primary", needs: "templates.create", onclick: () => this.create() }), button({ label: t("templates.import"), needs: "templates.create", onclick: () => this.create(null, true) }));
			return h(
				"div",
				{ class: "page" },
				h("div", { class: "filters" }, h("input", { type: "search", "aria-label": t("filter"), placeholder: t("filter"), value: query.get("q") ?? "", oninput: (ev) => setQuery({ q: ev.target.value }) }), origins.length > 1 ? h("select", { "aria-label": t("templates.origin"), onchange: (ev) => setQuery({ origin: ev.target.value }) }, h("option", { value: "", selected: from === "" }, t("templates.anyOrigin")), origins.map((o) => h("option", { value: o || "-", selected: (o || "-") === from }, o || t("templates.byHand")))) : null, h("span", { class: "muted small" }, t("templates.count", { count: rows.length }))),
				h(List, { rows, columns, id: (x) => x.name, href: (x) => link(["templates", x.name]), sort: by, onsort: (column, descending) => setQuery({ sort: column, order: descending ? "desc" : "" }), label: t("nav.templates"), none: empty(t("list.none"), t("list.none.text"), button({ label: t("list.clear"), onclick: () => setQuery({ q: "", origin: "" }) })) }),
			);
		});
	}

	/**
	 * create asks for a name, and makes a template without files or from an archive.
	 * @param {File | null} [file]
	 * @param {boolean} [wantsFile]
	 */
	create(file, wantsFile) {
		const form = { name: file ? file.name.replace(/\.(zip|tar|tgz|tar\.\w+)$/i, "").replace(/[^\w./-]/g, "-") : "", description: "", platform: "", file: file ?? null };
		const state = { error: /** @type {any} */ (null), busy: false, over: false };
		const archive = Boolean(file) || wantsFile;
		return ask(archive ? t("templates.import") : t("templates.new"), (close) => {
			const submit = async (ev) => {
				ev.preventDefault();
				if (archive && !form.file) return void (state.error = new api.Failure(422, "", t("templates.archive.missing")));
				state.busy = true;
				state.error = null;
				redraw();
				try {
					let made;
					if (archive && form.file) {
						const data = new FormData();
						for (const k of ["name", "description", "platform"]) data.append(k, form[k]);
						data.append("file", form.file, form.file.name);
						made = await api.request("POST", "/api/v1/templates/import", { form: data });
					} else made = await api.post("/api/v1/templates", { name: form.name, description: form.description, platform: form.platform });
					close(true);
					go(["templates", made.name]);
				} catch (err) {
					state.error = err;
				}
				state.busy = false;
			};
			const zone = dropZone((files) => { if (files[0]) form.file = files[0].file; redraw(); }, (over) => { state.over = over; });
			return h(
				"form",
				{ class: "dialog-body", onsubmit: submit },
				archive ? h("div", { class: "drop-place" + (state.over ? " over" : ""), ...zone }, h("p", null, form.file ? h("strong", null, visible(form.file.name)) : t("templates.archive.drop"), form.file ? " · " + bytes(form.file.size) : ""), h("label", { class: "button file-button" }, t("templates.archive.choose"), h("input", { type: "file", accept: ".zip,.tar,.gz,.tgz,.zst", onchange: (ev) => { form.file = ev.target.files[0] ?? form.file; if (form.file && !form.name) form.name = form.file.name.replace(/\.(zip|tar|tgz|tar\.\w+)$/i, ""); } })), h("small", { class: "muted" }, t("templates.archive.hint"))) : null,
				field({ label: t("templates.name"), name: "template-name", value: form.name, required: true, autofocus: true, hint: t("templates.name.hint"), oninput: (v) => { form.name = v; } }),
				field({ label: t("templates.description"), name: "template-description", value: form.description, maxlength: 2048, oninput: (v) => { form.description = v; } }),
				field({ label: t("templates.platform"), name: "template-platform", value: form.platform, maxlength: 64, hint: t("templates.platform.hint"), oninput: (v) => { form.platform = v; } }),
				state.error ? failure(state.error) : null,
				h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: t("action.create"), kind: "primary", type: "submit", busy: state.busy, onclick: undefined })),
			);
		});
	}

	showSources() {
		const may = allowed("system.settings");
		return this.sources.show((all) => h(
			"div",
			{ class: "page" },
			may ? h("div", { class: "row" }, button({ label: t("sources.new"), icon: "plus", onclick: () => this.editSource(null) })) : null,
			all.length === 0 ? empty(t("sources.none"), t("sources.none.text")) : h("div", { class: "grid wide" }, all.map((s) => this.source(s, may))),
		));
	}

	source(s, may) {
		const where = s.kind === "git" ? [s.url, s.branch || s.tag || s.commit, s.path].filter(Boolean).join(" · ") : s.kind === "s3" ? [s.url, s.bucket, s.prefix].filter(Boolean).join(" / ") : s.kind === "program" ? s.program : s.url;
		const status = s.status ?? {};
		const own = s.kind === "directory";
		return card(visible(s.name), { key: s.name, actions: h("span", { class: "row" }, s.paused ? badge("PAUSED") : sourceState(status.state)) },
			h("p", { class: "small" }, h("span", { class: "tag" }, s.kind), " ", h("span", { class: "mono" }, visible(where || (own ? t("sources.directory") : "")))),
			status.message ? h("p", { class: status.state === "FAILED" ? "notice bad" : "muted" }, visible(status.message)) : null,
			status.held ? h("div", { class: "notice warn" }, h("p", null, h("strong", null, t("sources.held"))), h("p", null, visible(status.held)), button({ label: t("sources.confirm"), needs: "templates.update", kind: "danger", onclick: () => this.confirmHeld(s) })) : null,
			h("p", { class: "muted small" }, own ? t("sources.lastChange") : t("sources.synced"), " ", age(status.at), status.revision ? h("span", null, " · ", h("span", { class: "mono", title: status.revision }, visible(status.revision.slice(0, 24)))) : null, s.intervalSeconds ? " · " + t("sources.interval", { seconds: s.intervalSeconds }) : ""),
			status.items?.length ? h("details", null, h("summary", null, t("sources.templates", { count: status.items.length })), h("ul", { class: "plain" }, status.items.slice(0, 200).map((i) => h("li", { key: i.template }, h("a", { class: "grow", href: link(["templates", i.template]) }, visible(i.template)), i.message ? h("span", { class: "muted small" }, visible(i.message)) : h("span", { class: "mono small" }, i.hash.slice(0, 8)))))) : null,
			h("div", { class: "row" },
				button({ label: t("sources.sync"), needs: "templates.update", onclick: () => attempt(() => api.post(api.url`/api/v1/template-sources/${s.name}/sync`, {}), t("sources.syncing")) }),
				may && !own ? button({ label: s.paused ? t("sources.resume") : t("sources.pause"), onclick: () => this.pause(s, !s.paused) }) : null,
				may && !own ? button({ label: t("action.edit"), onclick: () => this.editSource(s) }) : null,
				may && !own ? button({ label: t("action.delete"), kind: "danger", onclick: () => this.deleteSource(s) }) : null,
			),
		);
	}

	confirmHeld(s) {
		return confirm({ title: t("sources.confirm"), text: h("p", null, t("sources.confirm.text"), " ", visible(s.status.held)), label: t("sources.confirm"), danger: true, act: async () => {
			await api.post(api.url`/api/v1/template-sources/${s.name}/sync`, { confirm: s.status.held });
			say(t("sources.syncing"));
		} });
	}

	async pause(s, paused) {
		const put = (value) => attempt(async () => {
			const now = await api.get(api.url`/api/v1/template-sources/${s.name}`);
			await api.put(api.url`/api/v1/template-sources/${s.name}`, { ...fieldsOf(now), paused: value }, { ifMatch: now.$etag });
			this.sources.reload();
			return true;
		});
		if (await put(paused)) say(paused ? t("sources.paused") : t("sources.resumed"), { undo: () => put(!paused) });
	}

	deleteSource(s) {
		return confirm({ title: t("sources.delete", { name: s.name }), text: h("p", null, t("sources.delete.text")), label: t("action.delete"), danger: true, typed: s.name, preview: () => api.request("DELETE", api.url`/api/v1/template-sources/${s.name}`, { dryRun: true }), act: async () => {
			await api.request("DELETE", api.url`/api/v1/template-sources/${s.name}`);
			this.sources.reload();
			say(t("sources.deleted"));
		} });
	}

	async editSource(source) {
		const before = source ? await attempt(() => api.get(api.url`/api/v1/template-sources/${source.name}`)) : { name: "", kind: "git", url: "", intervalSeconds: 60 };
		if (!before) return;
		const form = { ...fieldsOf(before), name: before.name, credentials: {} };
		const state = { error: /** @type {any} */ (null), busy: false };
		const text = (key, o = {}) => field({ label: t("sources." + key), name: "source-" + key, value: form[key] ?? "", oninput: (v) => { form[key] = v; }, ...o });
		const secret = (key, o = {}) => field({ label: t("sources." + key), name: "source-" + key, type: "password", autocomplete: "new-password", value: form.credentials[key] ?? "", oninput: (v) => { form.credentials[key] = v; }, placeholder: (before.credentialNames ?? []).includes(key) ? t("sources.kept") : "", ...o });
		const parts = {
			git: () => [text("url", { required: true }), text("branch"), text("path", { hint: t("sources.path.hint") }), secret("user", { type: "text", autocomplete: "off" }), secret("token"), field({ label: t("sources.sshKey"), name: "source-sshKey", rows: 3, value: form.credentials.sshKey ?? "", oninput: (v) => { form.credentials.sshKey = v; }, placeholder: (before.credentialNames ?? []).includes("sshKey") ? t("sources.kept") : "" }), field({ label: t("sources.knownHosts"), name: "source-knownHosts", rows: 3, value: form.knownHosts ?? "", oninput: (v) => { form.knownHosts = v; } }), secret("webhook"), field({ label: t("sources.declares"), name: "source-declares", type: "checkbox", value: form.declares, hint: t("sources.declares.hint"), oninput: (v) => { form.declares = v; } })],
			s3: () => [text("url", { required: true }), text("bucket", { required: true }), text("prefix"), text("region"), secret("accessKey", { type: "text", autocomplete: "off" }), secret("secretKey"), field({ label: t("sources.pathStyle"), name: "source-pathStyle", type: "checkbox", value: form.pathStyle, oninput: (v) => { form.pathStyle = v; } })],
			http: () => [text("url", { required: true }), text("sha256"), text("hashUrl"), text("file", { hint: t("sources.file.hint") }), secret("user", { type: "text", autocomplete: "off" }), secret("token")],
			program: () => [text("program", { required: true })],
			configurations: () => [text("path")],
		};
		return ask(source ? t("sources.edit", { name: source.name }) : t("sources.new"), (close) => h(
			"form",
			{ class: "dialog-body", onsubmit: async (ev) => {
				ev.preventDefault();
				state.busy = true;
				state.error = null;
				redraw();
				try {
					const { name, ...body } = form;
					body.intervalSeconds = Number(body.intervalSeconds) || undefined;
					for (const [k, v] of Object.entries(body.credentials)) if (!v) delete body.credentials[k];
					if (Object.keys(body.credentials).length === 0) delete body.credentials;
					if (!source && !name) throw new api.Failure(422, "", t("sources.name"));
					await api.request("PUT", api.url`/api/v1/template-sources/${name}`, { body, ifMatch: before.$etag });
					close(true);
					this.sources.reload();
					say(t("sources.saved"));
				} catch (err) {
					form.credentials ??= {};
					state.error = err;
				}
				state.busy = false;
			} },
			h("div", { class: "form" },
				source ? null : text("name", { required: true, autofocus: true }),
				field({ label: t("sources.kind"), name: "source-kind", value: form.kind, options: Object.keys(parts).map((k) => [k, t("sources.kind." + k)]), oninput: (v) => { form.kind = v; } }),
				(parts[form.kind] ?? parts.git)(),
				form.kind === "configurations" ? null : [text("template", { hint: t("sources.template.hint") }), text("group", { hint: t("sources.group.hint") })],
				text("intervalSeconds", { type: "number", min: "10" }),
			),
			state.error ? failure(state.error) : null,
			h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: t("action.save"), kind: "primary", type: "submit", busy: state.busy, onclick: undefined })),
		));
	}
}

/** fieldsOf returns what may be sent of a source. */
function fieldsOf(s) {
	const { name, status, updatedBy, createdAt, updatedAt, credentialNames, ...rest } = s;
	return rest;
}

function sourceState(state) {
	const good = { IN_SYNC: "good", SYNCING: "busy", HELD: "warn", FAILED: "bad", CONFLICT: "bad" }[state] ?? "idle";
	const name = t("sources.state." + state);
	return h("span", { class: "badge " + good }, name.startsWith("sources.") ? state || "–" : name);
}

/** origin says where a template comes from. */
export function origin(x) {
	return x.origin ? h("span", { class: "tag" }, visible(x.origin)) : h("span", { class: "muted" }, t("templates.byHand"));
}
