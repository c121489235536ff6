// Objects as YAML text, for editing. The gateway reads YAML itself, so there is no parser here.

const plainText = /^[A-Za-z_./][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$/;
const reserved = /^(true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$/i;

/**
 * toYAML returns an object as YAML.
 * @param {any} value
 */
export function toYAML(value) {
	return write(value, "").replace(/^\n/, "") + "\n";
}

function write(v, indent) {
	if (Array.isArray(v)) {
		if (v.length === 0) return " []";
		return v.map((x) => "\n" + indent + "-" + inner(x, indent + "  ")).join("");
	}
	if (v !== null && typeof v === "object") {
		const keys = Object.keys(v);
		if (keys.length === 0) return " {}";
		return keys.map((k) => "\n" + indent + scalar(k) + ":" + (isCollection(v[k]) ? write(v[k], indent + "  ") : " " + scalar(v[k], indent + "  "))).join("");
	}
	return " " + scalar(v, indent);
}

/** inner writes an item of a list. A mapping begins on the line of its dash. */
function inner(v, indent) {
	if (!isCollection(v)) return " " + scalar(v, indent);
	return write(v, indent).replace(/^\n\s*/, " ");
}

function isCollection(v) {
	return v !== null && typeof v === "object";
}

function scalar(v, indent = "") {
	if (typeof v !== "string") return String(v);
	if (plainText.test(v) && !reserved.test(v)) return v;
	if (v.includes("\n") && !/[\u0000-\u0008\u000b-\u001f\u007f\u0085\u2028\u2029\ufeff\t]/.test(v) && !/^\s/.test(v) && v.trim() !== "") {
		const end = v.endsWith("\n\n") ? null : v.endsWith("\n") ? "" : "-";
		if (end !== null) return "|" + end + "\n" + v.replace(/\n$/, "").split("\n").map((l) => (l ? indent + l : "")).join("\n");
	}
	return JSON.stringify(v);
}
