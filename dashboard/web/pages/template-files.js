// The files of a template: a tree, an editor, and a draft of edits that is kept by the server.
import { h, quiet, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import { go, hold, link, route } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { changes } from "../parts/changes.js";
import { ask, confirm } from "../parts/dialog.js";
import { sideBySide } from "../parts/diff.js";
import { Editor } from "../parts/editor.js";
import { age, attempt, button, card, failure, field, icon, loading, Resource, say, sayFailure } from "../parts/ui.js";
import { download } from "../parts/download.js";
import { dropZone } from "../parts/transfer.js";

/** textLimit is the size of the largest text that the server reads and writes as one. */
const textLimit = 1 << 20;
/** editLimit is the size of the largest file that is opened in the editor. */
const editLimit = 16 << 20;
/** mostEntries is how many entries of a directory are drawn at first. */
const mostEntries = 300;

const parentOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/")));
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);
const join = (dir, name) => (dir ? dir + "/" + name : name);

/** textOf returns the text of a file, or null if it is binary. */
function textOf(buffer) {
	if (new Uint8Array(buffer, 0, Math.min(buffer.byteLength, 65536)).includes(0)) return null;
	try {
		return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(buffer);
	} catch {
		return null;
	}
}

/** Files is the tab of the files. */
export class Files {
	constructor(page) {
		this.page = page;
		this.may = allowed("templates.update");
		/** @type {Map<string, Resource>} directories that were opened, "" is the root */
		this.dirs = new Map();
		this.open = new Set([""]);
		/** @type {Map<string, number>} how many entries of a directory are drawn */
		this.shown = new Map();
		/** @type {Map<string, any>} files that were opened, with what was typed into them */
		this.buffers = new Map();
		/** @type {Map<string, string>} what the draft did to each path */
		this.marked = new Map();
		this.over = false;
		this.search = { q: "", results: /** @type {Resource | null} */ (null) };
		this.uploading = "";
		/** revealed is the file that the tree was opened for. */
		this.revealed = "";
		this.draftOpen = /** @type {boolean | undefined} */ (undefined);
		this.endHold = hold(() => this.stays());
	}

	removed() {
		this.endHold();
	}

	unsaved() {
		return [...this.buffers.values()].filter((b) => b.dirty);
	}

	/** stays asks before text that was typed is lost. */
	stays() {
		const list = this.unsaved();
		if (list.length === 0) return false;
		const to = location.hash;
		if (to !== "#" + route().text) {
			confirm({ title: t("content.leave"), text: h("p", null, t("content.leave.text", { names: list.map((b) => visible(b.path)).join(", ") })), label: t("content.leave.do"), danger: true, act: async () => {
				for (const b of list) b.dirty = false;
				setTimeout(() => { location.hash = to; });
			} });
		}
		return true;
	}

	/** reload reads again what is open. What was typed stays. */
	reload() {
		for (const [path, dir] of this.dirs) if (this.open.has(path)) dir.reload(); else this.dirs.delete(path);
		for (const [path, b] of this.buffers) {
			if (b.dirty || b.busy || b.loading) continue;
			if (path === this.selected()) this.refresh(b);
			else this.buffers.delete(path);
		}
	}

	/** refresh reads the shown file again. The editor stays as it is when nothing has changed. */
	async refresh(b) {
		try {
			const now = await this.content(b.path, { draft: this.may || undefined });
			if (b.dirty || (now.sha === b.sha && !b.error)) return;
			Object.assign(b, now, { error: null });
			b.serial++;
		} catch (err) {
			if (!b.dirty) b.error = err;
		}
		redraw();
	}

	dir(path) {
		let d = this.dirs.get(path);
		if (!d) {
			d = new Resource(() => api.get(this.page.base + "/files", { path, draft: this.may || undefined }));
			this.dirs.set(path, d);
		}
		return d;
	}

	/** buffer returns the file that is shown, and reads it at first. */
	buffer(path) {
		let b = this.buffers.get(path);
		if (!b) {
			b = { path, text: "", sha: "", size: 0, dirty: false, loading: true, error: null, conflict: null, serial: 0, editor: null, big: false, binary: false, fresh: false };
			this.buffers.set(path, b);
			this.read(b);
		}
		return b;
	}

	async read(b) {
		b.loading = true;
		b.error = null;
		try {
			Object.assign(b, await this.content(b.path, { draft: this.may || undefined }));
			b.serial++;
		} catch (err) {
			b.error = err;
		}
		b.loading = false;
		redraw();
	}

	/** content reads a file: its text, or that it is binary or too large. */
	async content(path, query) {
		try {
			const f = await api.get(this.page.base + "/files/content", { path, ...query });
			return { text: f.content, sha: f.sha256, size: f.size, binary: false, big: false };
		} catch (err) {
			if (err.status === 415) return { binary: true, big: false, text: "" };
			if (err.status !== 413) throw err;
		}
		const entry = (await api.get(this.page.base + "/files", { path: parentOf(path), ...query })).find((e) => e.path === path);
		if (entry && entry.size > editLimit) return { binary: false, big: true, size: entry.size, text: "" };
		const answer = await api.get(this.page.base + "/files/download", { path, ...query }, { raw: true });
		const buffer = await answer.arrayBuffer(), text = textOf(buffer);
		return { text: text ?? "", binary: text === null, big: false, size: buffer.byteLength, sha: entry?.sha256 ?? "" };
	}

	/** stage writes a text into the draft. */
	async stage(b, text, sha) {
		const query = { path: b.path, rehash: false };
		const size = new Blob([text]).size;
		if (size <= textLimit) {
			const answer = await api.request("PUT", this.page.base + "/files/content", { query, body: { content: text }, ifMatch: sha ? '"' + sha + '"' : undefined, raw: true });
			return (answer.headers.get("ETag") ?? "").replace(/^W\/|"/g, "");
		}
		// A larger text is uploaded. The server cannot compare it, so its hash is looked at first.
		const dir = parentOf(b.path), find = async () => (await api.get(this.page.base + "/files", { path: dir, draft: true })).find((e) => e.path === b.path);
		const now = await find();
		if (sha && now?.sha256 !== sha) throw new api.Failure(412, "PRECONDITION_FAILED", "");
		await this.send(dir, [{ path: nameOf(b.path), file: new Blob([text]) }]);
		return (await find())?.sha256 ?? "";
	}

	async save(b) {
		const text = b.editor?.text() ?? b.kept;
		if (text === undefined || !this.may || b.busy) return;
		b.busy = true;
		b.failure = null;
		redraw();
		try {
			b.sha = await this.stage(b, text, b.sha);
			b.text = text;
			b.size = new Blob([text]).size;
			b.dirty = b.editor ? b.editor.text() !== text : false;
			b.conflict = null;
			say(t("content.staged", { name: visible(nameOf(b.path)) }));
			this.after(parentOf(b.path));
		} catch (err) {
			if (err.status === 412) await this.showConflict(b, text);
			else b.failure = err;
		}
		b.busy = false;
	}

	async showConflict(b, mine) {
		try {
			const theirs = await this.content(b.path, { draft: true });
			b.conflict = { mine, theirs: theirs.text, sha: theirs.sha };
		} catch (err) {
			if (err.status === 404) b.conflict = { mine, theirs: "", sha: "", gone: true };
			else b.failure = err;
		}
	}

	/** after reads what a staged edit has changed. */
	after(...dirs) {
		for (const d of dirs) this.dirs.get(d)?.reload();
		this.page.draft?.reload();
	}

	/** send uploads files into a directory of the draft. */
	send(dir, files, extract) {
		const form = new FormData();
		for (const f of files) form.append("file", f.file, f.path);
		return api.request("POST", this.page.base + "/files/upload", { query: { path: dir, rehash: false, extract: extract || undefined }, form });
	}

	async upload(dir, files, extract) {
		if (files.length === 0) return;
		const known = this.dirs.get(dir)?.data ?? [];
		const replaced = extract ? [] : files.filter((f) => known.some((e) => e.path === join(dir, f.path)));
		const act = async () => {
			this.uploading = t("content.uploading", { count: files.length, size: bytes(files.reduce((n, f) => n + f.file.size, 0)) });
			redraw();
			try {
				// The server takes a thousand files at a time.
				for (let i = 0; i < files.length; i += 500) await this.send(dir, files.slice(i, i + 500), extract);
				say(t("content.uploaded", { count: files.length }));
				for (const f of files) if (!this.buffers.get(join(dir, f.path))?.dirty) this.buffers.delete(join(dir, f.path));
				this.open.add(dir);
				this.dir(dir);
				this.after(...this.dirs.keys());
			} finally {
				this.uploading = "";
				redraw();
			}
		};
		if (replaced.length > 0) return confirm({ title: t("content.replace"), text: h("div", null, h("p", null, t("content.replace.text", { count: replaced.length })), h("ul", null, replaced.slice(0, 20).map((f) => h("li", { class: "mono" }, visible(f.path))))), label: t("content.replace.do"), danger: true, act });
		return act().catch(sayFailure);
	}

	selected() {
		return route().query.get("path") ?? "";
	}

	to(path, line) {
		return link(["templates", this.page.name], { path, line });
	}

	go(path, line) {
		go(["templates", this.page.name], { path, line });
	}

	/** newName asks for a path. */
	newName(o) {
		const state = { path: o.path, error: /** @type {any} */ (null), busy: false };
		return ask(o.title, (close) => h(
			"form",
			{ class: "dialog-body", onsubmit: async (ev) => {
				ev.preventDefault();
				state.busy = true;
				state.error = null;
				redraw();
				try {
					await o.act(state.path.replace(/^\/+|\/+$/g, ""));
					close(true);
				} catch (err) {
					state.error = err;
				}
				state.busy = false;
			} },
			field({ label: t("content.path"), name: "file-path", value: state.path, required: true, autofocus: true, hint: o.hint, oninput: (v) => { state.path = v; } }),
			state.error ? failure(state.error) : null,
			h("div", { class: "row end" }, button({ label: t("action.cancel"), onclick: () => close() }), button({ label: o.label, kind: "primary", type: "submit", busy: state.busy, onclick: undefined })),
		));
	}

	newFile(dir) {
		return this.newName({ title: t("content.newFile"), path: dir ? dir + "/" : "", label: t("action.create"), hint: t("content.path.hint"), act: async (path) => {
			const there = await api.get(this.page.base + "/files", { path: parentOf(path), draft: true }).catch(() => []);
			if (there.some((e) => e.path === path)) throw new api.Failure(409, "ALREADY_EXISTS", t("content.exists", { name: visible(path) }));
			await api.request("PUT", this.page.base + "/files/content", { query: { path, rehash: false }, body: { content: "" } });
			this.reveal(path);
			this.after(...this.dirs.keys());
			this.go(path);
		} });
	}

	newDirectory(dir) {
		return this.newName({ title: t("content.newDirectory"), path: dir ? dir + "/" : "", label: t("action.create"), act: async (path) => {
			await api.request("POST", this.page.base + "/files/mkdir", { query: { rehash: false }, body: { path } });
			this.reveal(path + "/");
			this.after(...this.dirs.keys());
			this.go(path + "/");
		} });
	}

	rename(path, isDir) {
		return this.newName({ title: t("content.rename", { name: visible(nameOf(path)) }), path, label: t("content.rename.do"), act: async (to) => {
			const move = (from, to) => api.request("POST", this.page.base + "/files/rename", { query: { rehash: false }, body: { from, to } });
			await move(path, to);
			const b = this.buffers.get(path);
			if (b) {
				this.buffers.delete(path);
				b.kept = b.editor?.text() ?? b.kept;
				b.path = to;
				this.buffers.set(to, b);
			}
			this.reveal(to);
			this.after(...this.dirs.keys());
			this.go(isDir ? to + "/" : to);
			say(t("content.renamed", { name: visible(to) }), { undo: () => attempt(async () => { await move(to, path); this.buffers.delete(to); this.after(...this.dirs.keys()); this.go(isDir ? path + "/" : path); }) });
		} });
	}

	remove(path) {
		const del = (dryRun) => api.request("DELETE", this.page.base + "/files", { query: { path, rehash: false }, dryRun });
		return confirm({ title: t("content.delete", { name: visible(path) }), text: h("p", null, t("content.delete.text")), label: t("action.delete"), danger: true, preview: () => del(true), show: (x) => changes(x.files, { truncated: x.truncated, scope: "d" }), act: async () => {
			await del(false);
			for (const p of this.buffers.keys()) if (p === path || p.startsWith(path + "/")) this.buffers.delete(p);
			this.after(parentOf(path));
			this.go(parentOf(path) ? parentOf(path) + "/" : "");
			say(t("content.deleted", { name: visible(path) }), { undo: () => attempt(() => this.takeBack({ path, change: "REMOVED" })) });
		} });
	}

	/** reveal opens the directories above a path. */
	reveal(path) {
		const parts = path.split("/").slice(0, -1);
		for (let i = 0; i <= parts.length; i++) this.open.add(parts.slice(0, i).join("/"));
	}

	/** takeBack makes a path in the draft as it was before the draft. */
	async takeBack(c) {
		const base = this.page.draft?.data?.base ?? this.page.head.data.hash;
		if (c.change === "ADDED") await api.request("DELETE", this.page.base + "/files", { query: { path: c.path, rehash: false } });
		else await this.copy(c.path, { version: base });
		this.buffers.delete(c.path);
		await this.page.draft?.reload(); // the preview needs the tag of the draft with these files
		this.after(...this.dirs.keys());
	}

	/** copy stages a file, or the files of a directory, as another version has them. */
	async copy(path, query) {
		try {
			const blob = await (await api.get(this.page.base + "/files/download", { path, ...query }, { raw: true })).blob();
			await this.send(parentOf(path), [{ path: nameOf(path), file: blob }]);
		} catch (err) {
			const entries = await api.get(this.page.base + "/files", { path, ...query }).catch(() => { throw err; });
			if (entries.length === 0) await api.request("POST", this.page.base + "/files/mkdir", { query: { rehash: false }, body: { path } });
			for (const e of entries) await this.copy(e.path, query);
		}
	}

	/** texts reads both sides of a staged file. */
	async texts(c, from, to) {
		const side = async (there, query) => (there ? this.content(c.path, query) : { text: "" });
		const [old, next] = await Promise.all([side(c.oldHash, from), side(c.newHash, to)]);
		return { old: old.text, next: next.text, binary: Boolean(old.binary || next.binary || old.big || next.big) };
	}

	/** publish saves what is open to the draft, shows what would be published, and publishes it. */
	async publish() {
		for (const b of this.unsaved()) await this.save(b);
		await this.page.draft.reload();
		const state = { message: "" };
		const post = (dryRun) => api.request("POST", this.page.base + "/rehash", { body: { message: state.message || undefined }, ifMatch: this.page.draft.data?.$etag, dryRun });
		const head = this.page.head.data.hash;
		return confirm({
			title: t("content.publish.title"), label: t("content.publish"),
			text: this.unsaved().length > 0 ? h("p", { class: "notice warn" }, t("content.publish.unsaved", { names: this.unsaved().map((b) => visible(b.path)).join(", ") })) : h("p", null, t("content.publish.text")),
			fields: () => field({ label: t("content.message"), name: "message", value: state.message, autofocus: true, maxlength: 1000, hint: t("content.message.hint"), oninput: (v) => { state.message = v; } }),
			preview: () => post(true),
			show: (x) => changes(x.files, { truncated: x.truncated, scope: "p", texts: (c) => this.texts(c, { version: head }, { draft: true }) }),
			act: async () => {
				try {
					const done = await post(false);
					say(t("content.published", { hash: done.hash.slice(0, 8) }));
				} finally {
					this.page.changed();
				}
			},
		});
	}

	discard() {
		return confirm({ title: t("content.discard"), text: h("p", null, t("content.discard.text", { count: this.page.draft.data.files.length })), label: t("content.discard"), danger: true, act: async () => {
			await api.request("DELETE", this.page.base + "/draft", { ifMatch: this.page.draft.data.$etag });
			this.buffers.clear();
			await this.page.draft.reload();
			this.after(...this.dirs.keys());
			say(t("content.discarded"));
		} });
	}

	/** rebase stages the draft's files again on top of the current version. */
	async rebase(draft) {
		const kept = [];
		for (const c of draft.files) kept.push({ path: c.path, blob: c.newHash ? await (await api.get(this.page.base + "/files/download", { path: c.path, draft: true }, { raw: true })).blob() : null, directory: !c.oldHash && !c.newHash && c.change === "ADDED", removed: c.change === "REMOVED" });
		await api.request("DELETE", this.page.base + "/draft", { ifMatch: draft.$etag });
		for (const k of kept) {
			if (k.blob) await this.send(parentOf(k.path), [{ path: nameOf(k.path), file: k.blob }]);
			else if (k.directory) await api.request("POST", this.page.base + "/files/mkdir", { query: { rehash: false }, body: { path: k.path } });
			else if (k.removed) await api.request("DELETE", this.page.base + "/files", { query: { path: k.path, rehash: false } }).catch((err) => { if (err.status !== 404) throw err; });
		}
		this.page.changed();
		say(t("content.rebased"));
	}

	/** compareBoth shows each file that the draft and a newer version both changed. */
	async compareBoth(draft) {
		const head = this.page.head.data.hash;
		const answer = await attempt(() => api.get(this.page.base + "/diff", { from: draft.base, to: head }));
		if (!answer) return;
		const both = draft.files.filter((c) => answer.files.some((o) => o.path === c.path && o.newHash !== c.newHash));
		const texts = new Resource(() => Promise.all(both.slice(0, 20).map(async (c) => ({ path: c.path, ...(await this.texts({ path: c.path, oldHash: answer.files.find((o) => o.path === c.path).newHash, newHash: c.newHash }, { version: head }, { draft: true })) }))));
		const state = { busy: false, error: /** @type {any} */ (null) };
		return ask(t("content.both.title"), (close) => h("div", { class: "dialog-body" },
			h("p", null, both.length === 0 ? t("content.both.none", { count: answer.files.length }) : t("content.both.text", { count: both.length })),
			both.length === 0 ? null : texts.show((list) => h("div", { class: "page" }, list.map((f) => h("section", { key: f.path }, h("h3", { class: "mono" }, visible(f.path)), f.binary ? h("p", { class: "muted" }, t("changes.binary")) : sideBySide({ old: f.old, next: f.next, oldLabel: t("content.both.theirs"), nextLabel: t("content.both.mine") }))))),
			state.error ? failure(state.error) : null,
			h("div", { class: "row end" }, button({ label: t("action.close"), onclick: () => close() }), button({ label: t("content.rebase"), kind: "danger", busy: state.busy, title: t("content.rebase.hint"), onclick: async () => {
				state.busy = true;
				redraw();
				try {
					await this.rebase(draft);
					close(true);
				} catch (err) {
					state.error = err;
				}
				state.busy = false;
			} })),
		), { wide: true });
	}

	view() {
		const draft = this.page.draft?.data;
		return h("div", { class: "page" },
			this.page.draft?.error ? failure(this.page.draft.error, () => this.page.draft.reload()) : null,
			draft ? this.showDraft(draft) : null,
			h("div", { class: "split" }, this.showTree(draft), this.showFile()),
		);
	}

	showDraft(draft) {
		const head = this.page.head.data;
		const behind = head && head.hash !== draft.base;
		return card(t("content.draft"), { class: "draft", actions: h("span", { class: "row" }, button({ label: t("content.discard"), kind: "danger", onclick: () => this.discard() }), button({ label: t("content.review"), kind: "primary", disabled: draft.files.length === 0 && !behind, onclick: () => this.publish() })) },
			h("p", { class: "muted small" }, t("content.draft.text", { count: draft.files.length }), " ", age(draft.updatedAt)),
			behind ? h("div", { class: "notice warn" }, h("p", null, t("content.behind")), button({ label: t("content.both"), onclick: () => this.compareBoth(draft) })) : null,
			draft.files.length > 0 ? h("details", { open: this.draftOpen ?? draft.files.length <= 5, ontoggle: (ev) => { this.draftOpen = ev.target.open; return quiet; } }, h("summary", null, t("content.draft.list", { count: draft.files.length })), changes(draft.files, { truncated: draft.truncated, scope: "s", texts: (c) => this.texts(c, { version: draft.base }, { draft: true }), actions: (c) => button({ label: t("content.takeBack"), title: t("content.takeBack.name", { name: visible(c.path) }), kind: "small", onclick: () => attempt(() => this.takeBack(c), t("content.tookBack", { name: visible(c.path) })) }) })) : null,
		);
	}

	showTree(draft) {
		const selected = this.selected();
		const dir = selected.endsWith("/") ? selected.slice(0, -1) : parentOf(selected);
		this.marked = new Map((draft?.files ?? []).map((c) => [c.path, c.change]));
		const zone = this.may ? dropZone((files) => this.upload(dir, files), (over) => { this.over = over; redraw(); }) : {};
		return h("section", { class: "card tree-card" + (this.over ? " over" : ""), "aria-label": t("template.files"), ...zone },
			allowed("templates.content") ? h("input", { type: "search", "aria-label": t("content.search"), placeholder: t("content.search"), value: this.search.q, oninput: (ev) => { this.search.q = ev.target.value; if (!this.search.q) this.search.results = null; }, onkeydown: (ev) => { if (ev.key === "Enter" && this.search.q) this.search.results = new Resource(() => api.get(this.page.base + "/search", { q: this.search.q, draft: this.may || undefined, maxResults: 200 })); } }) : null,
			this.may ? h("div", { class: "row" }, button({ label: t("content.newFile"), kind: "small", icon: "file", onclick: () => this.newFile(dir) }), button({ label: t("content.newDirectory"), kind: "small", icon: "folder", onclick: () => this.newDirectory(dir) }), h("label", { class: "button small file-button" }, t("content.upload"), h("input", { type: "file", multiple: true, "aria-label": t("content.upload"), onchange: (ev) => { const files = [...ev.target.files].map((file) => ({ path: file.name, file })); ev.target.value = ""; this.upload(dir, files); } }))) : null,
			this.over ? h("p", { class: "notice info", role: "status" }, t("content.drop", { name: visible(dir) || "/" })) : null,
			this.uploading ? h("p", { class: "muted", role: "status" }, this.uploading) : null,
			this.search.results ? this.showResults() : h("nav", { class: "tree", "aria-label": t("template.files"), onkeydown: treeKeys }, h("a", { href: this.to("/"), class: "tree-row" + (selected === "/" || selected === "" ? " current" : ""), "aria-current": selected === "/" ? "page" : undefined }, icon("folder"), h("span", null, "/")), this.showDir("", 0, selected)),
		);
	}

	showDir(path, depth, selected) {
		const d = this.dir(path);
		return d.show((all) => {
			if (all.length === 0) return h("p", { class: "muted small tree-empty" }, t("content.emptyDirectory"));
			const most = this.shown.get(path) ?? mostEntries;
			const list = [...all].sort((a, b) => Number(b.isDirectory) - Number(a.isDirectory) || (a.name < b.name ? -1 : 1));
			return h("ul", null, list.slice(0, most).map((e) => (e.isDirectory ? this.showEntryDir(e, depth, selected) : this.showEntry(e, selected))), list.length > most ? h("li", { key: "\u0000more" }, button({ label: t("action.more"), kind: "small", onclick: () => { this.shown.set(path, most * 4); } })) : null);
		});
	}

	showEntryDir(e, depth, selected) {
		const open = this.open.has(e.path), current = selected === e.path + "/";
		return h("li", { key: e.path },
			h("span", { class: "tree-line" },
				h("button", { type: "button", class: "tree-toggle", "aria-expanded": String(open), "aria-label": t(open ? "content.close" : "content.open", { name: visible(e.name) }), onclick: () => { if (open) this.open.delete(e.path); else this.open.add(e.path); } }, h("span", { "aria-hidden": "true" }, open ? "▾" : "▸")),
				h("a", { href: this.to(e.path + "/"), class: "tree-row" + (current ? " current" : ""), "aria-current": current ? "page" : undefined, onclick: () => { this.open.add(e.path); } }, icon("folder"), h("span", null, visible(e.name)))),
			open ? this.showDir(e.path, depth + 1, selected) : null);
	}

	showEntry(e, selected) {
		const current = selected === e.path, b = this.buffers.get(e.path), change = this.marked.get(e.path);
		return h("li", { key: e.path }, h("a", { href: this.to(e.path), class: "tree-row" + (current ? " current" : ""), "aria-current": current ? "page" : undefined, onclick: comeDown, title: e.link ? "→ " + visible(e.link) : bytes(e.size) }, icon("file"), h("span", null, visible(e.name)), b?.dirty ? h("span", { class: "tree-mark warn", title: t("content.unsaved") }, "●", h("span", { class: "hidden" }, t("content.unsaved"))) : change ? h("span", { class: "tree-mark good", title: t("content.inDraft") }, change === "ADDED" ? "+" : "±", h("span", { class: "hidden" }, t("content.inDraft"))) : null));
	}

	showResults() {
		return h("div", null,
			h("div", { class: "row apart" }, h("strong", null, t("content.results")), button({ label: t("action.close"), kind: "small", onclick: () => { this.search = { q: "", results: null }; } })),
			this.search.results?.show((list) => (list.length === 0 ? h("p", { class: "muted" }, t("content.noResults")) : h("ul", { class: "plain results" }, list.map((m, i) => h("li", { key: i }, h("a", { class: "grow", href: this.to(m.path, m.line || undefined) }, h("span", { class: "mono small" }, visible(m.path) + (m.line ? ":" + m.line : "")), m.line ? h("span", { class: "block small muted mono" }, visible(m.content.slice(0, m.matchStart)), h("mark", null, visible(m.content.slice(m.matchStart, m.matchEnd))), visible(m.content.slice(m.matchEnd))) : null))))),
		));
	}

	showFile() {
		const path = this.selected();
		if (path === "" || path.endsWith("/")) return this.showDirectory(path.replace(/\/$/, ""));
		if (this.revealed !== path) {
			this.revealed = path;
			this.reveal(path);
		}
		const b = this.buffer(path);
		const tools = h("div", { class: "row" },
			this.may && !b.binary && !b.big && !b.loading && !b.error ? button({ label: t("content.stage"), kind: "primary", title: "Ctrl S", busy: b.busy, disabled: !b.dirty, onclick: () => this.save(b) }) : null,
			b.dirty ? button({ label: t("content.revert"), onclick: () => this.revert(b) }) : null,
			button({ label: t("action.download"), needs: "templates.content", onclick: () => attempt(() => download(this.page.base + "/files/download", { path, draft: this.may || undefined }, nameOf(path))) }),
			this.may ? button({ label: t("content.rename.do"), onclick: () => this.rename(path, false) }) : null,
			this.may && /\.(zip|tar|tgz|gz|zst)$/i.test(path) ? button({ label: t("content.extract"), onclick: () => attempt(async () => { await api.request("POST", this.page.base + "/files/extract", { query: { path, rehash: false } }); this.after(...this.dirs.keys()); }, t("content.extracted")) }) : null,
			this.may ? button({ label: t("action.delete"), kind: "danger", onclick: () => this.remove(path) }) : null,
		);
		return h("section", { class: "card file-card", "aria-label": visible(path) },
			h("header", { class: "card-head" }, h("h2", { class: "mono" }, visible(path)), tools),
			b.failure ? failure(b.failure) : null,
			b.conflict ? this.showConflicts(b) : null,
			b.loading ? loading() : b.error ? (b.error.status === 400 ? h("p", { class: "muted" }, visible(b.error.message)) : failure(b.error, () => this.read(b))) : b.binary ? h("p", { class: "muted" }, t("content.binary")) : b.big ? h("p", { class: "muted" }, t("content.big", { size: bytes(b.size) })) : h(Editor, { key: path + b.serial, ref: (e, old) => { if (e) b.editor = e; else if (b.editor === old) { b.kept = old.text(); b.editor = null; } }, text: b.dirty && b.kept !== undefined ? b.kept : b.text, path, label: t("content.editor", { name: visible(path) }), readOnly: !this.may, line: Number(route().query.get("line")) || 0, onsave: () => this.save(b), onchange: () => { if (!b.dirty) { b.dirty = true; redraw(); } } }),
		);
	}

	revert(b) {
		const typed = b.editor?.text() ?? b.kept;
		b.dirty = false;
		b.conflict = null;
		b.serial++;
		say(t("content.reverted"), { undo: () => { b.dirty = true; b.kept = typed; b.editor = null; b.serial++; redraw(); } });
	}

	showConflicts(b) {
		const c = b.conflict;
		return h("div", { class: "notice warn", role: "alert" },
			h("p", null, h("strong", null, t("failure.412")), " ", c.gone ? t("content.gone") : t("content.conflict")),
			sideBySide({ old: c.theirs, next: c.mine, oldLabel: t("content.theirs"), nextLabel: t("content.mine") }),
			h("div", { class: "row" },
				button({ label: t("content.keepMine"), kind: "primary", onclick: () => { b.sha = c.sha; b.conflict = null; return this.save(b); } }),
				button({ label: t("content.takeTheirs"), onclick: () => {
					const mine = b.editor?.text() ?? c.mine, old = { text: b.text, sha: b.sha };
					Object.assign(b, { text: c.theirs, sha: c.sha, dirty: false, conflict: null });
					b.serial++;
					say(t("content.tookTheirs"), { undo: () => { Object.assign(b, old, { dirty: true, kept: mine, editor: null }); b.serial++; redraw(); } });
				} }),
			));
	}

	showDirectory(path) {
		const d = this.dir(path);
		return h("section", { class: "card file-card", "aria-label": t("content.directory") },
			h("header", { class: "card-head" }, h("h2", { class: "mono" }, path ? visible(path) + "/" : "/"), h("div", { class: "row" },
				button({ label: t("content.asArchive"), needs: "templates.content", onclick: () => attempt(() => download(this.page.base + "/export", { format: "zip", path: path || undefined, draft: this.may || undefined }, nameOf(path || this.page.name) + ".zip")) }),
				path && this.may ? button({ label: t("content.rename.do"), onclick: () => this.rename(path, true) }) : null,
				path && this.may ? button({ label: t("action.delete"), kind: "danger", onclick: () => this.remove(path) }) : null)),
			d.show((all) => (all.length === 0 ? h("p", { class: "muted" }, this.may ? t("content.emptyTemplate") : t("content.emptyDirectory")) : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "/" + visible(path) }, h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, t("templates.name")), h("th", { scope: "col", class: "right" }, t("templates.size")), h("th", { scope: "col" }, t("content.mode")))), h("tbody", null, all.slice(0, this.shown.get(path) ?? mostEntries).map((e) => h("tr", { key: e.path }, h("td", null, h("a", { href: this.to(e.isDirectory ? e.path + "/" : e.path), onclick: () => { if (e.isDirectory) this.open.add(e.path); } }, visible(e.name) + (e.isDirectory ? "/" : "")), e.link ? h("span", { class: "muted" }, " → " + visible(e.link)) : null), h("td", { class: "right nowrap" }, e.isDirectory ? "" : bytes(e.size)), h("td", { class: "mono" }, e.mode))))))),
			),
			this.may ? h("p", { class: "muted small" }, t("content.dropHint")) : null,
		);
	}
}

/** comeDown shows the file where it is below the tree, on narrow pages. */
function comeDown() {
	if (innerWidth <= 900) requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(".file-card")?.scrollIntoView()));
	return quiet;
}

/** treeKeys moves between the rows of the tree with the arrow keys. */
function treeKeys(ev) {
	const step = { ArrowDown: 1, ArrowUp: -1 }[ev.key];
	const row = ev.target.closest(".tree-line")?.querySelector(".tree-toggle");
	if (row && (ev.key === "ArrowRight" || ev.key === "ArrowLeft")) {
		if ((row.getAttribute("aria-expanded") === "true") !== (ev.key === "ArrowRight")) row.click();
		return ev.preventDefault();
	}
	if (!step) return undefined;
	ev.preventDefault();
	const rows = [...ev.currentTarget.querySelectorAll("a.tree-row")];
	const at = rows.indexOf(ev.target.closest(".tree-line")?.querySelector("a.tree-row") ?? ev.target);
	rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
	return undefined;
}
