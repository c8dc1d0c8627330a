/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of paths that requests may name. */
#include "kvr_engine_paths.h"

#include <string.h>

#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~./"

bool kvr_engine_paths_valid(const char *list)
{
	for (;; list++) {
		const size_t n = strcspn(list, ",");

		if (n == 0 || (list[0] != '/' && (n != 1 || list[0] != '*')) ||
		    strcspn(list, "*?# ") < n - 1 || list[n - 1] == '?' || list[n - 1] == '#' ||
		    list[n - 1] == ' ')
			return false;
		list += n;
		if (*list == '\0')
			return true;
	}
}

/* Return true if every URL parser reads the path alike. */
static bool is_plain(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] == '\0' || strchr(PLAIN, p[i]) == NULL ||
		    (p[i] == '/' && i + 1 < len && (p[i + 1] == '/' || p[i + 1] == '.')))
			return false;
	return true;
}

static bool matches_entry(const char *entry, size_t n, const char *path, size_t len)
{
	if (entry[n - 1] != '*')
		return n == len && memcmp(entry, path, n) == 0;
	if (n == 1)
		return true;
	return len >= n - 1 && memcmp(entry, path, n - 1) == 0 && is_plain(path, len);
}

bool kvr_engine_path_allowed(const char *list, const char *target, size_t len)
{
	size_t end = 0;

	while (end < len && target[end] != '?' && target[end] != '#')
		end++;
	for (;; list++) {
		const size_t n = strcspn(list, ",");

		if (matches_entry(list, n, target, end))
			return true;
		list += n;
		if (*list == '\0')
			return false;
	}
}
