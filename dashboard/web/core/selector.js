// Label selectors, as the gateway writes them: expressions that are separated by commas.

const expression = /\s*(?:!(?<absent>[^\s,=!()]+)|(?<key>[^\s,=!()]+)(?:\s*(?<compare>!=|==?)\s*(?<value>[^\s,]*)|\s+(?<among>in|notin)\s*\((?<values>[^)]*)\))?)\s*(?:,|$)/y;

/**
 * matches reports whether labels satisfy all expressions of a selector. A text that is not a selector
 * matches nothing.
 * @param {string} selector
 * @param {Record<string, string>} labels
 */
export function matches(selector, labels) {
	const has = (key) => Object.hasOwn(labels, key);
	expression.lastIndex = 0;
	while (expression.lastIndex < selector.length) {
		const e = expression.exec(selector)?.groups;
		if (!e) return false;
		const { absent, key, compare, value, among, values } = e;
		if (absent) {
			if (has(absent)) return false;
			continue;
		}
		const wanted = among ? values.split(",").map((v) => v.trim()) : [value];
		const found = has(key) && (compare || among ? wanted.includes(labels[key]) : true);
		if (found === (compare === "!=" || among === "notin")) return false;
	}
	return true;
}
