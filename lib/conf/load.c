/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_conf.h"

#include "file_pvt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_cfgfile.h>

struct loader {
	const char *path;
	const struct kvr_conf_section *sections;
	void *arg;
	char *err;
	size_t errlen;
	const struct conf_file *file;
};

/* rte_cfgfile reads only files with a name. */
static struct rte_cfgfile *load_clean(const char *clean)
{
	const size_t len = strlen(clean);
	struct rte_cfgfile *cfg = NULL;
	char name[64];
	int fd;

	fd = memfd_create("kvr_conf", MFD_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (write(fd, clean, len) == (ssize_t)len) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		cfg = rte_cfgfile_load(name, CFG_FLAG_EMPTY_VALUES);
	}
	close(fd);
	return cfg;
}

static const struct kvr_conf_section *match(const struct kvr_conf_section *s, const char *name,
					    const char **instance)
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

static int say_section(const struct loader *l, unsigned int line, const char *name)
{
	size_t n = (size_t)snprintf(l->err, l->errlen,
				    "%s:%u: [%s]: unknown section, allowed:", l->path, line, name);

	for (const struct kvr_conf_section *s = l->sections; s->name != NULL && n < l->errlen;
	     s++) {
		const size_t len = strlen(s->name);

		n += (size_t)snprintf(l->err + n, l->errlen - n, "%s [%s%s]",
				      s == l->sections ? "" : ",", s->name,
				      len > 0 && s->name[len - 1] == ' ' ? "NAME" : "");
	}
	return -ENOENT;
}

static int say_get(const struct loader *l, unsigned int line, const char *name, int e)
{
	const char *why = strerror(e);

	if (e == EEXIST)
		why = "given twice, allowed: once";
	else if (e == ENOSPC)
		why = "too many sections of this kind";
	else if (e == EINVAL)
		why = "bad name";
	snprintf(l->err, l->errlen, "%s:%u: [%s]: %s", l->path, line, name, why);
	return -e;
}

static const struct kvr_opt *option(const struct kvr_opt *table, const char *key)
{
	while (table->name != NULL && strcmp(table->name, key) != 0)
		table++;
	return table;
}

static bool deprecated(const struct kvr_opt *table, const char *key)
{
	return option(table, key)->flags & KVR_OPT_F_DEPRECATED;
}

/* Presets, or all the others. */
static int load_entries(const struct loader *l, unsigned int index, const char *name,
			const struct kvr_opt *table, void *obj, const struct rte_cfgfile_entry *e,
			int n, bool presets)
{
	char why[512];

	for (int i = 0; i < n; i++) {
		if ((option(table, e[i].name)->sets != NULL) != presets)
			continue;
		const struct conf_item *it = kvr_conf__item(l->file, index, e[i].name);
		const unsigned int line = it != NULL ? it->line : 0;
		const int rc = kvr_conf_set(table, obj, e[i].name, e[i].value, why, sizeof(why));

		if (rc != 0) {
			snprintf(l->err, l->errlen, "%s:%u: [%s] %s: %s", l->path, line, name,
				 e[i].name, why);
			return rc;
		}
		if (deprecated(table, e[i].name) && l->err[0] == '\0')
			snprintf(l->err, l->errlen, "%s:%u: [%s] %s: deprecated", l->path, line,
				 name, e[i].name);
	}
	return 0;
}

static int load_section(const struct loader *l, struct rte_cfgfile *cfg, unsigned int index)
{
	const struct conf_item *head = kvr_conf__item(l->file, index, NULL);
	const struct kvr_conf_section *s;
	struct rte_cfgfile_entry *entries;
	char name[CFG_NAME_LEN];
	const char *instance;
	void *obj;
	int n, rc;

	n = rte_cfgfile_section_num_entries_by_index(cfg, name, (int)index);
	if (n < 0 || head == NULL) {
		snprintf(l->err, l->errlen, "%s: rte_cfgfile lost section %u", l->path, index);
		return -EINVAL;
	}
	s = match(l->sections, name, &instance);
	if (s == NULL)
		return say_section(l, head->line, name);
	errno = EINVAL; /* of a get() that forgets to say */
	obj = s->get(l->arg, instance);
	if (obj == NULL)
		return say_get(l, head->line, name, errno);
	entries = calloc((size_t)n + 1, sizeof(*entries));
	if (entries == NULL)
		return say_get(l, head->line, name, ENOMEM);
	n = rte_cfgfile_section_entries_by_index(cfg, (int)index, name, entries, n);
	rc = load_entries(l, index, name, s->table, obj, entries, n, true);
	if (rc == 0)
		rc = load_entries(l, index, name, s->table, obj, entries, n, false);
	free(entries);
	return rc;
}

int kvr_conf_load(const char *path, const struct kvr_conf_section *sections, void *arg, char *err,
		  size_t errlen)
{
	struct conf_file file;
	struct loader l = {path, sections, arg, err, errlen, &file};
	struct rte_cfgfile *cfg;
	int rc;

	err[0] = '\0';
	rc = kvr_conf__read(path, &file, err, errlen);
	if (rc != 0)
		return rc;
	cfg = load_clean(file.clean);
	if (cfg == NULL) {
		snprintf(err, errlen, "%s: rte_cfgfile cannot load it (no memory, or no /proc)",
			 path);
		rc = -ENOMEM;
		goto out;
	}
	for (unsigned int i = 0; rc == 0 && i < file.n_sections; i++)
		rc = load_section(&l, cfg, i);
	rte_cfgfile_close(cfg);
out:
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
