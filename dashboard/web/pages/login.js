// The login: by password, with a second factor, or at a provider.
import { h, redraw } from "../core/dom.js";
import * as api from "../core/api.js";
import * as session from "../core/session.js";
import * as live from "../core/live.js";
import { t } from "../core/text.js";
import { visible } from "../core/format.js";
import { button, field, failureTitle } from "../parts/ui.js";

const verifierKey = "orrery.oidc";

/** Login asks who the reader is. With again, the login ended while the page was in use. */
export class Login {
	constructor(attrs) {
		this.again = attrs.again;
		this.name = session.user()?.username ?? localStorage.getItem("orrery.lastUser") ?? "";
		this.password = "";
		this.code = "";
		this.needsCode = false;
		this.busy = false;
		this.error = /** @type {any} */ (null);
		this.provider = /** @type {any} */ (null);
		api.get("/api/v1/auth/oidc").then((p) => { this.provider = p; redraw(); }, () => {});
		this.comeBack();
	}

	/** comeBack finishes a login at the provider. */
	async comeBack() {
		const query = new URLSearchParams(location.search);
		const kept = JSON.parse(sessionStorage.getItem(verifierKey) ?? "null");
		if (!query.has("code") && !query.has("error")) return;
		history.replaceState(null, "", "/" + (kept?.hash ?? ""));
		dispatchEvent(new HashChangeEvent("hashchange")); // the page of the address is another one now
		sessionStorage.removeItem(verifierKey);
		if (!kept || query.get("state") !== kept.state) {
			this.error = new api.Failure(401, "STATE", t("login.state"));
			return redraw();
		}
		if (query.has("error")) {
			this.error = new api.Failure(401, query.get("error"), query.get("error_description") ?? query.get("error"));
			return redraw();
		}
		await this.send(() => api.post("/api/v1/auth/oidc/exchange", { code: query.get("code"), codeVerifier: kept.verifier }));
	}

	async goToProvider() {
		const random = () => base64(crypto.getRandomValues(new Uint8Array(32)));
		const kept = { verifier: random(), state: random(), hash: location.hash };
		if (!crypto.subtle) {
			this.error = new api.Failure(400, "INSECURE", t("login.insecure"));
			return;
		}
		sessionStorage.setItem(verifierKey, JSON.stringify(kept));
		const challenge = base64(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(kept.verifier))));
		location.href = this.provider.loginUrl + "?" + new URLSearchParams({ redirect_uri: location.origin + "/", code_challenge: challenge, state: kept.state });
	}

	async send(request) {
		if (this.busy) return;
		this.busy = true;
		this.error = null;
		redraw();
		try {
			const answer = await request();
			const before = localStorage.getItem("orrery.lastUser");
			localStorage.setItem("orrery.lastUser", answer.user.username);
			session.begin(answer);
			if (this.again && before !== answer.user.username) location.reload();
			live.start();
		} catch (err) {
			if (err.code === "SECOND_FACTOR_REQUIRED") {
				this.needsCode = true;
				requestAnimationFrame(() => document.getElementById("f-code")?.focus());
			} else this.error = err;
		}
		this.busy = false;
		redraw();
	}

	view() {
		const submit = (ev) => {
			ev.preventDefault();
			return this.send(() => api.post("/api/v1/auth/login", { username: this.name, password: this.password, code: this.needsCode ? this.code.replace(/\s/g, "") : undefined }));
		};
		return h(
			"form",
			{ class: "login card", onsubmit: submit, "aria-label": t("login.title") },
			h("div", { class: "brand" }, h("img", { src: new URL("../icon.svg", import.meta.url).href, alt: "", width: "40", height: "40" }), h("h1", null, "Orrery")),
			this.again ? h("p", { class: "notice warn", role: "alert" }, t("login.expired")) : null,
			field({ label: t("login.name"), name: "username", value: this.name, autocomplete: "username", autofocus: true, required: true, oninput: (v) => { this.name = v; } }),
			field({ label: t("login.password"), name: "password", type: "password", value: this.password, autocomplete: "current-password", required: true, oninput: (v) => { this.password = v; } }),
			this.needsCode ? field({ label: t("login.code"), name: "code", value: this.code, autocomplete: "one-time-code", inputmode: "numeric", required: true, hint: t("login.code.hint"), oninput: (v) => { this.code = v; } }) : null,
			this.error ? h("div", { class: "notice bad", role: "alert" }, this.error.status === 401 ? visible(this.error.message) : failureTitle(this.error) + (this.error.message ? ": " + visible(this.error.message) : "")) : null,
			button({ label: t("login.do"), kind: "primary", type: "submit", busy: this.busy, onclick: undefined }),
			this.provider?.enabled ? button({ label: t("login.provider", { issuer: host(this.provider.issuer) }), onclick: () => this.goToProvider() }) : null,
			this.again ? button({ label: t("login.other"), kind: "quiet", onclick: () => location.reload() }) : [h("p", { class: "small" }, h("a", { href: "#/reset" }, t("reset.forgot"))), h("p", { class: "muted small" }, t("login.first"))],
		);
	}
}

function host(url) {
	try {
		return new URL(url).host;
	} catch {
		return "OpenID";
	}
}

function base64(bytes) {
	return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
