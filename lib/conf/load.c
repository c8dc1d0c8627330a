/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fill objects from an INI file. Each section is loaded in two passes, presets first, so that other
 * keys override a preset wherever they stand. A list is joined from all its entries and stored with
 * the first.
 */
#include "kvr_conf.h"

#include "file_pvt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

struct loader {
	const char *path;
	const struct kvr_conf_section *sections;
	void *arg;
	char *err;
	size_t errlen;
};

static const struct kvr_conf_section *find_section(const struct kvr_conf_section *s,
						   const char *name, const char **instance)
{
	for (; s->name != NULL; s++) {
		const size_t n = strlen(s->name);

		*instance = "";
		if (strcmp(s->name, name) == 0)
			return s;
		if (n > 0 && s->name[n - 1] == ' ' && strncmp(s->name, name, n) == 0) {
			*instance = name + n + strspn(name + n, " \t");
			return s;
		}
	}
	return NULL;
}

static int report_unknown(const struct loader *loader, unsigned int line, const char *name)
{
	size_t n = (size_t)snprintf(loader->err, loader->errlen,
				    "%s:%u: [%s]: unknown section, allowed:", loader->path, line,
				    name);

	for (const struct kvr_conf_section *s = loader->sections;
	     s->name != NULL && n < loader->errlen; s++) {
		const size_t len = strlen(s->name);

		n += (size_t)snprintf(loader->err + n, loader->errlen - n, "%s [%s%s]",
				      s == loader->sections ? "" : ",", s->name,
				      len > 0 && s->name[len - 1] == ' ' ? "NAME" : "");
	}
	return -ENOENT;
}

static int report_refused(const struct loader *loader, unsigned int line, const char *name, int e)
{
	const char *why = strerror(e);

	if (e == EEXIST)
		why = "given twice, allowed: once";
	else if (e == ENOSPC)
		why = "too many sections of this kind";
	else if (e == EINVAL)
		why = "bad name";
	snprintf(loader->err, loader->errlen, "%s:%u: [%s]: %s", loader->path, line, name, why);
	return -e;
}

/* A section of the file, and the object that it fills. */
struct filling {
	const struct conf_item *head, *end; /* header, and the item after the last entry */
	const struct kvr_opt *table;
	void *obj;
};

static const struct conf_item *find_first(const struct filling *section, const char *key)
{
	const struct conf_item *it = section->head + 1;

	while (strcmp(it->key, key) != 0)
		it++;
	return it;
}

/* Join the values of a list, @p first and its repetitions, by blanks. */
static int join_values(const struct filling *section, const struct conf_item *first, char *text,
		       size_t len)
{
	size_t used = 0;

	for (const struct conf_item *it = first; it < section->end && used < len; it++)
		if (strcmp(it->key, first->key) == 0)
			used += (size_t)snprintf(text + used, len - used, "%s%s",
						 used == 0 ? "" : " ", it->value);
	return used < len ? 0 : -ERANGE;
}

/* Store one entry; a list is stored with its first. On error @p why has no file and line. */
static int load_entry(const struct filling *section, const struct conf_item *it, bool list,
		      char *why, size_t len)
{
	const struct conf_item *first = find_first(section, it->key);
	char text[KVR_CONF_MAX_VALUE + 1];

	if (it != first && list)
		return 0;
	if (it != first) {
		snprintf(why, len, "given twice, first on line %u", first->line);
		return -EEXIST;
	}
	if (!list)
		return kvr_conf_set(section->table, section->obj, it->key, it->value, why, len);
	if (join_values(section, first, text, sizeof(text)) == 0)
		return kvr_conf_set(section->table, section->obj, it->key, text, why, len);
	snprintf(why, len, "values too long together, allowed: %u characters", KVR_CONF_MAX_VALUE);
	return -ERANGE;
}

/* Load the entries that are presets, or all others. */
static int load_entries(const struct loader *loader, const struct filling *section, bool presets)
{
	char why[512];

	for (const struct conf_item *it = section->head + 1; it < section->end; it++) {
		const struct kvr_opt *opt = kvr_conf_find(section->table, it->key);
		const uint32_t flags = opt != NULL ? opt->flags : 0;
		int rc;

		if ((opt != NULL && opt->sets != NULL) != presets)
			continue;
		rc = load_entry(section, it, flags & KVR_OPT_F_LIST, why, sizeof(why));
		if (rc != 0 || ((flags & KVR_OPT_F_DEPRECATED) && loader->err[0] == '\0'))
			snprintf(loader->err, loader->errlen, "%s:%u: [%s] %s: %s", loader->path,
				 it->line, it->name, it->key, rc != 0 ? why : "deprecated");
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int load_section(const struct loader *loader, const struct conf_item *head,
			const struct conf_item *end)
{
	struct filling f = {.head = head, .end = end};
	const struct kvr_conf_section *s;
	const char *instance;
	int rc;

	s = find_section(loader->sections, head->name, &instance);
	if (s == NULL)
		return report_unknown(loader, head->line, head->name);
	errno = EINVAL; /* default if get() does not set errno */
	f.table = s->table;
	f.obj = s->get(loader->arg, instance);
	if (f.obj == NULL)
		return report_refused(loader, head->line, head->name, errno);
	rc = load_entries(loader, &f, true);
	return rc != 0 ? rc : load_entries(loader, &f, false);
}

int kvr_conf_load(const char *path, const struct kvr_conf_section *sections, void *arg, char *err,
		  size_t errlen)
{
	const struct loader l = {path, sections, arg, err, errlen};
	struct conf_file file;
	int rc;

	err[0] = '\0';
	rc = kvr_conf__read(path, &file, err, errlen);
	if (rc != 0)
		return rc;
	for (unsigned int head = 0, end; rc == 0 && head < file.n_items; head = end) {
		for (end = head + 1; end < file.n_items && file.items[end].key != NULL; end++)
			;
		rc = load_section(&l, &file.items[head], &file.items[end]);
	}
	kvr_conf__free(&file);
	return rc;
}

void kvr_conf_blame(const char *path, const char *section, const char *key, char *err,
		    size_t errlen, const char *fmt, ...)
{
	const struct conf_item *best = NULL;
	char where[32] = "", message[512];
	struct conf_file file;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (kvr_conf__read(path, &file, err, errlen) == 0) {
		for (unsigned int i = 0; i < file.n_items; i++) {
			const struct conf_item *it = &file.items[i];

			if (strcmp(it->name, section) != 0)
				continue;
			if (it->key == NULL)
				best = it;
			else if (key != NULL && strcmp(it->key, key) == 0)
				best = it;
		}
		if (best != NULL)
			snprintf(where, sizeof(where), "%u:", best->line);
		kvr_conf__free(&file);
	}
	snprintf(err, errlen, "%s:%s [%s]%s%s: %s", path, where, section, key != NULL ? " " : "",
		 key != NULL ? key : "", message);
}

void kvr_conf_blame_line(const char *path, const char *section, const char *line, char *err,
			 size_t errlen)
{
	const char *colon = strstr(line, ": ");
	char key[KVR_CONF_MAX_KEY + 1];

	if (colon == NULL || (size_t)(colon - line) >= sizeof(key)) {
		kvr_conf_blame(path, section, NULL, err, errlen, "%s", line);
		return;
	}
	memcpy(key, line, (size_t)(colon - line));
	key[colon - line] = '\0';
	kvr_conf_blame(path, section, key, err, errlen, "%s", colon + 2);
}
