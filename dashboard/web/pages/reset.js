// A forgotten password: ask for the token that resets it, and set a new one with it.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { route } from "../core/router.js";
import { visible } from "../core/format.js";
import { t } from "../core/text.js";
import { button, failure, field } from "../parts/ui.js";

/** Reset needs no login. The mail leads here with a token in the address. */
export class Reset {
	constructor() {
		const sent = new URLSearchParams(location.search).get("token") ?? route().query.get("token") ?? "";
		// The token is as good as a password: it does not stay in the address and the history.
		if (sent) history.replaceState(null, "", "/#/reset");
		this.has = sent !== "";
		this.token = sent;
		this.email = "";
		this.next = "";
		this.again = "";
		this.busy = false;
		this.error = /** @type {any} */ (null);
		this.done = "";
	}

	async send(ev, f) {
		ev.preventDefault();
		this.busy = true;
		this.error = null;
		try {
			await f();
		} catch (err) {
			this.error = err;
		}
		this.busy = false;
	}

	view() {
		const back = h("p", { class: "small" }, h("a", { href: "#/" }, t("reset.back")));
		if (this.done) return h("div", { class: "login card" }, h("h1", null, t("reset.title")), h("p", { class: "notice info", role: "status" }, this.done), this.has ? null : h("div", { class: "row" }, button({ label: t("reset.have"), onclick: () => { this.done = ""; this.has = true; } })), back);
		return this.has ? this.complete(back) : this.request(back);
	}

	request(back) {
		const ask = async () => {
			await api.post("/api/v1/auth/password-reset/request", { email: this.email.trim() });
			this.done = t("reset.sent");
		};
		return h("form", { class: "login card", "aria-label": t("reset.title"), onsubmit: (ev) => this.send(ev, ask) },
			h("h1", null, t("reset.title")),
			h("p", { class: "muted" }, t("reset.text")),
			field({ label: t("users.email"), name: "reset-email", type: "email", autocomplete: "email", required: true, autofocus: true, value: this.email, oninput: (v) => { this.email = v; } }),
			this.error ? refused(this.error) : null,
			button({ label: t("reset.send"), kind: "primary", type: "submit", busy: this.busy, onclick: undefined }),
			button({ label: t("reset.have"), kind: "quiet", onclick: () => { this.has = true; this.error = null; } }),
			back);
	}

	complete(back) {
		const set = async () => {
			if (this.next !== this.again) throw new api.Failure(422, "", t("settings.password.differ"));
			await api.post("/api/v1/auth/password-reset/complete", { token: this.token.trim(), newPassword: this.next });
			this.done = t("reset.done");
		};
		return h("form", { class: "login card", "aria-label": t("reset.title"), onsubmit: (ev) => this.send(ev, set) },
			h("h1", null, t("reset.title")),
			field({ label: t("reset.token"), name: "reset-token", value: this.token, class: "mono", required: true, autocomplete: "off", hint: t("reset.token.hint"), oninput: (v) => { this.token = v; } }),
			field({ label: t("users.newPassword"), name: "reset-password", type: "password", autocomplete: "new-password", required: true, minlength: 8, autofocus: true, hint: t("users.newPassword.hint"), value: this.next, oninput: (v) => { this.next = v; } }),
			field({ label: t("settings.password.again"), name: "reset-again", type: "password", autocomplete: "new-password", required: true, value: this.again, oninput: (v) => { this.again = v; } }),
			this.error ? refused(this.error) : null,
			button({ label: t("settings.password.do"), kind: "primary", type: "submit", busy: this.busy, onclick: undefined }),
			button({ label: t("reset.another"), kind: "quiet", onclick: () => { this.has = false; this.error = null; } }),
			back);
	}
}

/** refused draws why a request failed. The server's words say enough about a token and about resets that are off. */
function refused(err) {
	return ["INVALID_TOKEN", "NOT_ENABLED"].includes(err.code) ? h("div", { class: "notice bad", role: "alert" }, visible(err.message)) : failure(err);
}
