// The files of an instance: those of a static one can be changed, others only read.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { hold, route, setQuery } from "../core/router.js";
import { bytes, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { ask, confirm } from "./dialog.js";
import { saveBlob } from "./download.js";
import { age, attempt, button, empty, failure, field, icon, loading, Resource, say } from "./ui.js";

/** most is how much of a file is shown for editing. */
const most = 1 << 20;

/** Files shows a directory of an instance or one of its files. attrs: instance. */
export class Files {
	constructor({ instance }) {
		this.path = api.url`/api/v1/services/${instance.uid}/files`;
		this.dirs = new Map();
		/** @type {any} */
		this.file = null;
		this.release = hold(() => this.changed() && !window.confirm(t("files.leave")), true);
	}

	removed() {
		this.release();
	}

	changed() {
		return this.file !== null && this.file.text !== this.file.saved;
	}

	writable(instance) {
		return live.allowedIn("instances.files.write", instance.group) && Boolean(live.groups.get(instance.group)?.static);
	}

	view({ instance }) {
		const at = route().query.get("path") ?? "";
		const open = route().query.get("file") ?? "";
		if (open) return this.editor(instance, open);
		this.file = null;
		if (!this.dirs.has(at)) this.dirs.set(at, new Resource(() => api.get(this.path, { path: at })));
		const dir = this.dirs.get(at), writable = this.writable(instance);
		const join = (name) => (at ? at + "/" : "") + name;
		const reload = () => dir.reload();
		const upload = async (list) => {
			for (const f of list) {
				const form = new FormData();
				form.append("file", f);
				await attempt(() => api.request("POST", this.path + "/upload", { query: { path: at }, form }), t("files.uploaded", { name: visible(f.name) }));
			}
			reload();
		};
		return h(
			"div",
			{ class: "card", ondragover: writable ? (ev) => ev.preventDefault() : undefined, ondrop: writable ? (ev) => (ev.preventDefault(), upload([...ev.dataTransfer.files])) : undefined },
			h(
				"div",
				{ class: "row apart" },
				this.crumbs(at),
				writable
					? h("div", { class: "row" }, button({ label: t("files.newFile"), onclick: () => this.ask(t("files.newFile"), (name) => setQuery({ file: join(name) })) }), button({ label: t("files.newDir"), onclick: () => this.ask(t("files.newDir"), async (name) => { await attempt(() => api.post(this.path + "/mkdir", { path: join(name) })); reload(); }) }), h("label", { class: "button" }, t("files.upload"), h("input", { type: "file", multiple: true, class: "hidden", onchange: (ev) => upload([...ev.target.files]) })))
					: h("span", { class: "muted small" }, t("files.readOnly")),
			),
			dir.show((d) => d.entries.length === 0
				? empty(t("files.empty"), writable ? t("files.drop") : "")
				: h("ul", { class: "plain files" }, d.entries.map((f) => h(
					"li",
					{ key: f.name },
					icon(f.isDirectory ? "folder" : "file"),
					h("button", { type: "button", class: "link grow", disabled: !f.isDirectory && !f.isFile, onclick: () => setQuery(f.isDirectory ? { path: join(f.name) } : { file: join(f.name) }) }, visible(f.name)),
					h("span", { class: "muted small" }, f.isDirectory ? "" : bytes(f.size)),
					h("span", { class: "muted small" }, f.modifiedAt ? age(f.modifiedAt) : ""),
					writable ? button({ label: t("files.rename"), kind: "small quiet", onclick: () => this.ask(t("files.rename"), async (name) => { await attempt(() => api.post(this.path + "/rename", { from: join(f.name), to: join(name) }), t("files.renamed"), { undo: () => attempt(() => api.post(this.path + "/rename", { from: join(name), to: join(f.name) })).then(reload) }); reload(); }, f.name) }) : null,
					writable ? button({ label: t("action.delete"), kind: "small quiet danger", onclick: () => this.remove(join(f.name), f, reload) }) : null,
				)), d.truncated ? h("li", { class: "muted" }, t("files.more")) : null)),
		);
	}

	crumbs(at) {
		const parts = at.split("/").filter(Boolean);
		return h("nav", { class: "row", "aria-label": t("files.where") }, h("button", { type: "button", class: "link", onclick: () => setQuery({ path: "", file: "" }) }, t("files.root")), parts.map((p, n) => [" / ", h("button", { type: "button", class: "link", onclick: () => setQuery({ path: parts.slice(0, n + 1).join("/"), file: "" }) }, visible(p))]));
	}

	async ask(title, act, value = "") {
		const state = { name: value };
		const name = await ask(title, (close) => h("form", { class: "dialog-body", onsubmit: (ev) => { ev.preventDefault(); if (state.name.trim()) close(state.name.trim()); } }, field({ label: t("files.name"), name: "file-name", value: state.name, autofocus: true, oninput: (v) => { state.name = v; } }), h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: t("action.save"), kind: "primary", type: "submit", onclick: undefined }))));
		if (name) await act(name);
		redraw();
	}

	remove(path, f, reload) {
		return confirm({
			title: t("files.delete.title", { name: visible(f.name) }),
			text: h("p", null, t(f.isDirectory ? "files.delete.dir" : "files.delete.text")),
			label: t("action.delete"),
			danger: true,
			act: async () => {
				const answer = await api.del(this.path, { query: { path }, ifMatch: f.etag ? '"' + f.etag.replace(/"/g, "") + '"' : undefined });
				say(t("files.deleted", { name: visible(f.name) }), answer?.version ? { undo: () => attempt(() => api.post(this.path + "/restore", { version: answer.version }), t("undone")).then(reload) } : {});
				reload();
			},
		});
	}

	async read(path) {
		this.file = { path, busy: true, text: "", saved: "" };
		try {
			const answer = await api.get(this.path + "/content", { path, maxBytes: most });
			this.file = { path, text: answer.content, saved: answer.content, etag: answer.$etag ?? (answer.etag ? '"' + answer.etag + '"' : undefined), truncated: answer.truncated, masked: answer.masked, size: answer.totalSizeBytes };
		} catch (err) {
			if (err.status === 404) this.file = { path, text: "", saved: "", fresh: true };
			else this.file = { path, text: "", saved: "", error: err };
		}
		redraw();
	}

	async save(force) {
		const f = this.file;
		f.busy = true;
		f.error = null;
		try {
			const answer = await api.put(this.path + "/content", { content: f.text }, { query: { path: f.path }, ifMatch: force || f.fresh ? undefined : f.etag });
			const before = f.saved, fresh = f.fresh;
			f.saved = f.text;
			f.etag = answer.etag ? '"' + answer.etag.replace(/"/g, "") + '"' : f.etag;
			f.fresh = false;
			f.theirs = undefined;
			this.dirs.clear();
			say(t(answer.replacedAtNextStart ? "files.saved.replaced" : "files.saved"), fresh ? {} : { undo: () => { f.text = before; return this.save(true); } });
		} catch (err) {
			if (err.status === 412) {
				const now = await api.get(this.path + "/content", { path: f.path, maxBytes: most }).catch(() => null);
				f.theirs = now?.content ?? "";
				f.etag = now?.$etag ?? f.etag;
			} else f.error = err;
		}
		f.busy = false;
		redraw();
	}

	editor(instance, path) {
		if (this.file?.path !== path) this.read(path);
		const f = this.file, writable = this.writable(instance) && !f.truncated && !f.masked;
		const back = () => { if (!this.changed() || window.confirm(t("files.leave"))) { this.file = null; setQuery({ file: "" }); } };
		return h(
			"div",
			{ class: "card" },
			h("div", { class: "row apart" }, h("div", { class: "row" }, button({ label: t("files.back"), icon: "back", kind: "quiet", onclick: back }), h("strong", { class: "mono" }, visible(path)), this.changed() ? h("span", { class: "badge warn" }, t("files.changed")) : null), h("div", { class: "row" }, button({ label: t("action.download"), onclick: () => saveBlob(new Blob([f.text], { type: "application/octet-stream" }), path.split("/").pop() ?? "file") }), writable ? button({ label: t("action.save"), kind: "primary", busy: f.busy, disabled: !this.changed() && !f.fresh, onclick: () => this.save(false) }) : null)),
			f.truncated ? h("p", { class: "notice warn" }, t("files.truncated", { shown: bytes(most), all: bytes(f.size) })) : null,
			f.masked ? h("p", { class: "notice warn" }, t("files.masked")) : null,
			f.error ? failure(f.error, () => this.read(path)) : null,
			f.theirs !== undefined ? h("div", { class: "notice warn", role: "alert" }, h("p", null, t("failure.412")), h("div", { class: "grid wide full-width" }, h("div", null, h("h3", null, t("files.theirs")), h("pre", { class: "text" }, visible(f.theirs))), h("div", null, h("h3", null, t("files.yours")), h("pre", { class: "text" }, visible(f.text)))), h("div", { class: "row" }, button({ label: t("files.takeTheirs"), onclick: () => { f.text = f.saved = f.theirs; f.theirs = undefined; } }), button({ label: t("files.keepYours"), kind: "danger", onclick: () => this.save(true) }))) : null,
			f.busy && !f.text && !f.error ? loading() : h("textarea", { class: "mono editor", "aria-label": path, spellcheck: "false", readonly: !writable, rows: "28", value: f.text, oninput: (ev) => { f.text = ev.target.value; }, onkeydown: (ev) => { if ((ev.ctrlKey || ev.metaKey) && ev.key === "s") { ev.preventDefault(); if (writable && this.changed()) this.save(false); } } }),
		);
	}
}
