// One template: its files with a draft of edits, its versions and its settings.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { link, route } from "../core/router.js";
import { allowed } from "../core/session.js";
import { bytes, number, visible } from "../core/format.js";
import { t } from "../core/text.js";
import { reloadOn } from "../parts/follow.js";
import { age, attempt, badge, button, failure, heading, Resource, tabs } from "../parts/ui.js";
import { download } from "../parts/download.js";
import { Files } from "./template-files.js";
import { Settings } from "./template-settings.js";
import { origin } from "./templates.js";
import { Versions } from "./template-versions.js";

export default class Template {
	constructor({ path }) {
		this.name = path[1];
		this.base = api.url`/api/v1/templates/${this.name}`;
		this.head = new Resource(() => api.get(this.base));
		this.draft = allowed("templates.update") ? new Resource(() => this.readDraft()) : null;
		this.files = new Files(this);
		this.versions = new Versions(this);
		this.settings = new Settings(this);
		this.end = reloadOn((e) => e.type === "TEMPLATE_UPDATED" && e.templateName === this.name, () => this.changed());
	}

	removed() {
		this.end();
		this.files.removed();
	}

	async readDraft() {
		try {
			return await api.get(this.base + "/draft");
		} catch (err) {
			if (err.status === 404) return null;
			throw err;
		}
	}

	/** changed reads again what depends on the template's versions. */
	changed() {
		this.head.reload();
		this.draft?.reload();
		this.files.reload();
		this.versions.reload();
		this.settings.reload();
	}

	view() {
		const tab = route().query.get("tab") ?? "files";
		const to = (id) => link(["templates", this.name], { tab: id === "files" ? "" : id });
		const x = this.head.data;
		if (this.head.error?.status === 404) return h("div", { class: "page" }, heading(visible(this.name), { crumbs: [[t("nav.templates"), link(["templates"])]] }), failure(this.head.error));
		return h(
			"div",
			{ class: "page" },
			heading(visible(this.name), {
				crumbs: [[t("nav.templates"), link(["templates"])]],
				under: x ? h("p", { class: "muted small" }, x.description ? visible(x.description) + " · " : "", origin(x), " · " + t("template.size", { files: number(x.files), size: bytes(x.sizeBytes) }) + " · " + t("templates.updated") + " ", age(x.updatedAt), " · ", h("span", { class: "mono", title: x.hash }, x.hash.slice(0, 8)), x.platform ? [" ", badge(x.platform)] : null) : null,
				actions: [button({ label: t("template.export"), needs: "templates.content", onclick: () => attempt(() => download(this.base + "/export", { format: "zip" }, this.name.replaceAll("/", "-") + ".zip")) })],
			}),
			tabs([{ id: "files", label: t("template.files"), href: to("files") }, { id: "versions", label: t("template.versions"), href: to("versions") }, { id: "settings", label: t("template.settings"), href: to("settings") }], tab),
			this.head.error && !x ? failure(this.head.error, () => this.head.reload()) : tab === "versions" ? this.versions.view() : tab === "settings" ? this.settings.view() : this.files.view(),
		);
	}
}
