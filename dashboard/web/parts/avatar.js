// The picture of a user.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import * as live from "../core/live.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { attempt, button, icon, say } from "./ui.js";

/** picture draws a user's picture, or a sign in its place. */
export function picture(u) {
	return u?.avatarUrl ? h("img", { class: "avatar", src: u.avatarUrl, alt: "" }) : icon("users");
}

/**
 * editAvatar draws a picture with buttons that replace and remove it.
 * @param {any} u
 */
export function editAvatar(u) {
	const path = api.url`/api/v1/users/${u.username}/avatar`;
	const send = async (file) => {
		const form = new FormData();
		form.append("avatar", file);
		await api.request("POST", path, { form });
		await live.checkUser();
	};
	const remove = () => attempt(async () => {
		const before = await (await fetch(u.avatarUrl)).blob();
		await api.del(path);
		await live.checkUser();
		say(t("avatar.removed"), { undo: () => attempt(() => send(before)) });
	});
	return h("div", { class: "row" },
		u.avatarUrl ? h("img", { class: "avatar large", src: u.avatarUrl, alt: t("avatar.of", { name: visible(u.username) }) }) : null,
		h("label", { class: "button file-button" }, u.avatarUrl ? t("avatar.change") : t("avatar.add"), h("input", { type: "file", accept: "image/png,image/jpeg,image/gif,image/webp", title: t("avatar.hint"), onchange: (ev) => { const [file] = ev.target.files; ev.target.value = ""; return file ? attempt(() => send(file), t("avatar.saved")) : undefined; } })),
		u.avatarUrl ? button({ label: t("avatar.remove"), onclick: remove }) : null);
}
