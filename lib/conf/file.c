/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reader of INI files: splits the text in place into sections and entries with their line numbers.
 * Values are checked in load.c.
 */
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

__attribute__((format(printf, 3, 4))) static int report_error(struct reader *reader, int rc,
							      const char *fmt, ...)
{
	const int n = snprintf(reader->err, reader->errlen, "%s:%u: ", reader->path, reader->line);
	va_list ap;

	if (n >= 0 && (size_t)n < reader->errlen) {
		va_start(ap, fmt);
		vsnprintf(reader->err + n, reader->errlen - (size_t)n, fmt, ap);
		va_end(ap);
	}
	return rc;
}

/* Read a whole file as a string. Only regular files: a fifo or device could block or never end. */
static int read_file(const char *path, char **text, char *err, size_t errlen)
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
		snprintf(err, errlen, "%s: out of memory", path);
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

static char *trim_blanks(char *s)
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

static int add_item(struct reader *reader, struct conf_item it)
{
	struct conf_file *file = reader->f;

	/* Double the array when the number of items is one less than a power of two. */
	if ((file->n_items & (file->n_items + 1)) == 0) {
		struct conf_item *p = realloc(file->items, (2 * file->n_items + 2) * sizeof(*p));

		if (p == NULL)
			return report_error(reader, -ENOMEM, "out of memory");
		file->items = p;
	}
	it.line = reader->line;
	file->items[file->n_items++] = it;
	return 0;
}

static int read_section(struct reader *reader, char *s)
{
	char *end = strchr(s, ']');
	char *name;

	if (end == NULL || end[1] != '\0')
		return report_error(reader, -EINVAL,
				    "got \"%.64s\", allowed: [section] alone on its line", s);
	*end = '\0';
	name = trim_blanks(s + 1);
	if (name[0] == '\0')
		return report_error(reader, -EINVAL,
				    "empty section name, allowed: 1 to %u characters",
				    KVR_CONF_MAX_KEY);
	if (strlen(name) > KVR_CONF_MAX_KEY)
		return report_error(reader, -EINVAL,
				    "[%.64s...]: section name too long, allowed: %u characters",
				    name, KVR_CONF_MAX_KEY);
	for (unsigned int i = 0; i < reader->f->n_items; i++)
		if (reader->f->items[i].key == NULL && strcmp(reader->f->items[i].name, name) == 0)
			return report_error(reader, -EEXIST, "[%s]: given twice, first on line %u",
					    name, reader->f->items[i].line);
	return add_item(reader, (struct conf_item){.name = name});
}

static int read_entry(struct reader *reader, char *s)
{
	char *eq = strchr(s, '=');
	const char *section;
	char *key, *value;

	if (eq == NULL)
		return report_error(reader, -EINVAL,
				    "got \"%.64s\", allowed: key = value, [section], a comment", s);
	*eq = '\0';
	key = trim_blanks(s);
	value = trim_blanks(eq + 1);
	if (reader->f->n_items == 0)
		return report_error(reader, -EINVAL,
				    "%.64s: key outside a section, allowed: after a [section] line",
				    key);
	section = reader->f->items[reader->f->n_items - 1].name;
	if (key[0] == '\0')
		return report_error(reader, -EINVAL, "[%s]: no key before '='", section);
	if (strlen(key) > KVR_CONF_MAX_KEY)
		return report_error(reader, -EINVAL,
				    "[%s] %.64s...: key too long, allowed: %u characters", section,
				    key, KVR_CONF_MAX_KEY);
	if (strlen(value) > KVR_CONF_MAX_VALUE)
		return report_error(reader, -EINVAL,
				    "[%s] %s: value of %zu characters, allowed: %u", section, key,
				    strlen(value), KVR_CONF_MAX_VALUE);
	return add_item(reader, (struct conf_item){.name = section, .key = key, .value = value});
}

static int read_line(struct reader *reader, char *line)
{
	char *s;

	line[strcspn(line, ";#")] = '\0';
	s = trim_blanks(line);
	if (*s == '\0')
		return 0;
	/* Error messages quote the input and must stay one printable line. */
	for (const char *c = s; *c != '\0'; c++)
		if (iscntrl((unsigned char)*c) && *c != '\t')
			return report_error(reader, -EINVAL,
					    "control character 0x%02x, allowed: printable text",
					    (unsigned char)*c);
	return *s == '[' ? read_section(reader, s) : read_entry(reader, s);
}

int kvr_conf__read(const char *path, struct conf_file *file, char *err, size_t errlen)
{
	struct reader r = {.path = path, .f = file, .err = err, .errlen = errlen};
	char *line;
	int rc;

	memset(file, 0, sizeof(*file));
	rc = read_file(path, &file->text, err, errlen);
	if (rc != 0)
		return rc;
	for (char *next = file->text; rc == 0 && (line = strsep(&next, "\n")) != NULL;) {
		r.line++;
		rc = read_line(&r, line);
	}
	if (rc != 0)
		kvr_conf__free(file);
	return rc;
}

void kvr_conf__free(struct conf_file *file)
{
	free(file->items);
	free(file->text);
	memset(file, 0, sizeof(*file));
}
