/* SPDX-License-Identifier: BSD-3-Clause */
#include "file_pvt.h"

#include "kvr_conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reader {
	const char *path;
	struct conf_file *f;
	unsigned int line;
	char *err;
	size_t errlen;
};

__attribute__((format(printf, 3, 4))) static int bad(struct reader *r, int rc, const char *fmt, ...)
{
	const int n = snprintf(r->err, r->errlen, "%s:%u: ", r->path, r->line);
	va_list ap;

	if (n >= 0 && (size_t)n < r->errlen) {
		va_start(ap, fmt);
		vsnprintf(r->err + n, r->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return rc;
}

/* Whole file as a string. A fifo or device could block or never end, so regular files only. */
static int slurp(const char *path, char **text, char *err, size_t errlen)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *buf = NULL;
	struct stat st;
	size_t used = 0;
	int rc;

	if (fd < 0 || fstat(fd, &st) != 0) {
		rc = -errno;
		snprintf(err, errlen, "%s: cannot read: %s", path, strerror(errno));
		goto out;
	}
	rc = -EINVAL;
	if (!S_ISREG(st.st_mode)) {
		snprintf(err, errlen, "%s: not a regular file", path);
		goto out;
	}
	rc = -EFBIG;
	if (st.st_size > (off_t)KVR_CONF_MAX_BYTES) {
		snprintf(err, errlen, "%s: larger than %u bytes", path, KVR_CONF_MAX_BYTES);
		goto out;
	}
	rc = -ENOMEM;
	buf = malloc((size_t)st.st_size + 1);
	if (buf == NULL) {
		snprintf(err, errlen, "%s: no memory", path);
		goto out;
	}
	while (used < (size_t)st.st_size) {
		const ssize_t n = read(fd, buf + used, (size_t)st.st_size - used);

		if (n < 0) {
			rc = -errno;
			snprintf(err, errlen, "%s: cannot read: %s", path, strerror(errno));
			goto out;
		}
		if (n == 0)
			break;
		used += (size_t)n;
	}
	buf[used] = '\0';
	rc = strlen(buf) == used ? 0 : -EINVAL;
	if (rc != 0)
		snprintf(err, errlen, "%s: contains a zero byte, not a text file", path);
out:
	if (fd >= 0)
		close(fd);
	if (rc != 0) {
		free(buf);
		buf = NULL;
	}
	*text = buf;
	return rc;
}

static char *trim(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	n = strlen(s);
	while (n > 0 && isspace((unsigned char)s[n - 1]))
		n--;
	s[n] = '\0';
	return s;
}

static int add_item(struct reader *r, struct conf_item it)
{
	struct conf_file *f = r->f;

	/* Grow at powers of two. */
	if ((f->n_items & (f->n_items + 1)) == 0) {
		struct conf_item *p = realloc(f->items, (2 * f->n_items + 2) * sizeof(*p));

		if (p == NULL)
			return bad(r, -ENOMEM, "no memory");
		f->items = p;
	}
	it.line = r->line;
	f->items[f->n_items++] = it;
	return 0;
}

static int read_section(struct reader *r, char *s)
{
	char *end = strchr(s, ']');
	char *name;

	if (end == NULL || end[1] != '\0')
		return bad(r, -EINVAL, "got \"%.64s\", allowed: [section] alone on its line", s);
	*end = '\0';
	name = trim(s + 1);
	if (name[0] == '\0')
		return bad(r, -EINVAL, "empty section name, allowed: 1 to %u characters",
			   KVR_CONF_MAX_KEY);
	if (strlen(name) > KVR_CONF_MAX_KEY)
		return bad(r, -EINVAL, "[%.64s...]: section name too long, allowed: %u characters",
			   name, KVR_CONF_MAX_KEY);
	for (unsigned int i = 0; i < r->f->n_items; i++)
		if (r->f->items[i].key == NULL && strcmp(r->f->items[i].name, name) == 0)
			return bad(r, -EEXIST, "[%s]: given twice, first on line %u", name,
				   r->f->items[i].line);
	return add_item(r, (struct conf_item){.name = name});
}

static int read_entry(struct reader *r, char *s)
{
	char *eq = strchr(s, '=');
	const char *section;
	char *key, *value;

	if (eq == NULL)
		return bad(r, -EINVAL, "got \"%.64s\", allowed: key = value, [section], a comment",
			   s);
	*eq = '\0';
	key = trim(s);
	value = trim(eq + 1);
	if (r->f->n_items == 0)
		return bad(r, -EINVAL,
			   "%.64s: key outside a section, allowed: after a [section] line", key);
	section = r->f->items[r->f->n_items - 1].name;
	if (key[0] == '\0')
		return bad(r, -EINVAL, "[%s] no key before '='", section);
	if (strlen(key) > KVR_CONF_MAX_KEY)
		return bad(r, -EINVAL, "[%s] %.64s...: key too long, allowed: %u characters",
			   section, key, KVR_CONF_MAX_KEY);
	if (strlen(value) > KVR_CONF_MAX_VALUE)
		return bad(r, -EINVAL, "[%s] %s: value of %zu characters, allowed: %u", section,
			   key, strlen(value), KVR_CONF_MAX_VALUE);
	return add_item(r, (struct conf_item){.name = section, .key = key, .value = value});
}

static int read_line(struct reader *r, char *line)
{
	char *s;

	line[strcspn(line, ";#")] = '\0';
	s = trim(line);
	if (*s == '\0')
		return 0;
	/* Error texts quote what they read and must stay one printable line. */
	for (const char *c = s; *c != '\0'; c++)
		if (iscntrl((unsigned char)*c) && *c != '\t')
			return bad(r, -EINVAL, "control character 0x%02x, allowed: printable text",
				   (unsigned char)*c);
	return *s == '[' ? read_section(r, s) : read_entry(r, s);
}

int kvr_conf__read(const char *path, struct conf_file *f, char *err, size_t errlen)
{
	struct reader r = {.path = path, .f = f, .err = err, .errlen = errlen};
	char *line;
	int rc;

	memset(f, 0, sizeof(*f));
	rc = slurp(path, &f->text, err, errlen);
	if (rc != 0)
		return rc;
	for (char *next = f->text; rc == 0 && (line = strsep(&next, "\n")) != NULL;) {
		r.line++;
		rc = read_line(&r, line);
	}
	if (rc != 0)
		kvr_conf__free(f);
	return rc;
}

void kvr_conf__free(struct conf_file *f)
{
	free(f->items);
	free(f->text);
	memset(f, 0, sizeof(*f));
}
