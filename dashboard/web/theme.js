// Sets the colours before the first paint. The choice is light, dark, or that of the system.
{
	const chosen = localStorage.getItem("orrery.theme");
	if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
