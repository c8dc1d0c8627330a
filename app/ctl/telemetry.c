/* SPDX-License-Identifier: BSD-3-Clause */
#include "telemetry.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define GREETING     1024u
#define SHARED_PLACE "/tmp"
#define MAX_ANSWER   (1u << 20)
#define MAX_PAGES    10000u
#define MAX_METRICS  (64u << 20)

void tel_places(struct tel_places *p)
{
	const char *const only = getenv("RUNTIME_DIRECTORY");
	const char *const from[] = {"/run/kvroute", /* of the service */
				    "/var/run", getenv("XDG_RUNTIME_DIR"), SHARED_PLACE};
	size_t n = 0;

	memset(p, 0, sizeof(*p));
	if (only != NULL && *only != '\0') { /* then DPDK uses no other folder */
		snprintf(p->at[0], sizeof(p->at[0]), "%s", only);
		return;
	}
	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
		if (from[i] != NULL && *from[i] != '\0' && strlen(from[i]) < sizeof(p->at[0]))
			snprintf(p->at[n++], sizeof(p->at[0]), "%s", from[i]);
}

/* ---- socket ---- */

static int connect_socket(const char *place, const char *prefix)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = TEL_PATIENCE_S};
	int fd;

	if (snprintf(to.sun_path, sizeof(to.sun_path), "%s/dpdk/%s/dpdk_telemetry.v2", place,
		     prefix) >= (int)sizeof(to.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		const int why = errno;

		close(fd);
		errno = why;
		return -1;
	}
	return fd;
}

/* Read the greeting of DPDK. @return 0; -1: not a telemetry socket. */
static int read_greeting(struct tel *t)
{
	char text[GREETING + 1];
	const ssize_t n = recv(t->fd, text, GREETING, 0);
	json_t *hello;
	json_int_t max;

	if (n <= 0)
		return -1;
	hello = json_loadb(text, (size_t)n, 0, NULL);
	max = json_integer_value(json_object_get(hello, "max_output_len"));
	t->pid = (long)json_integer_value(json_object_get(hello, "pid"));
	json_decref(hello);
	if (max <= 0 || max > MAX_ANSWER)
		return -1;
	t->max = (size_t)max;
	t->answer = malloc(t->max + 1);
	return t->answer != NULL ? 0 : -1;
}

void tel_close(struct tel *t)
{
	if (t->fd >= 0)
		close(t->fd);
	free(t->answer);
	t->answer = NULL;
	t->fd = -1;
}

/* ---- search ---- */

struct search {
	struct tel *t;
	int alive, denied, silent;
	char names[512];
	char denied_at[400];
	char closed[400]; /* text about a closed folder below /tmp, which any user may have created
			     without a router; or "" */
};

static void append_name(char *list, size_t len, const char *name)
{
	const size_t n = strlen(list);

	if (n < len)
		snprintf(list + n, len - n, "%s%s", n != 0 ? "\n" : "", name);
}

/* @return true if /tmp/dpdk is readable by its owner only. */
static bool is_hidden(struct search *s, const char *place)
{
	const char *path = SHARED_PLACE "/dpdk";
	struct passwd *user;
	struct stat st;

	if (strcmp(place, SHARED_PLACE) != 0 || access(path, R_OK | X_OK) == 0 ||
	    stat(path, &st) < 0)
		return false;
	user = getpwuid(st.st_uid);
	snprintf(s->closed, sizeof(s->closed),
		 "; %s is readable by %s only: run kvroute-ctl as that user or as root", path,
		 user != NULL ? user->pw_name : "another user");
	return true;
}

/* Try one socket. The first one that answers stays open. */
static void try_router(struct search *s, const char *place, const char *prefix)
{
	struct tel t = {.fd = connect_socket(place, prefix)};
	char err[128];
	json_t *info;

	if (t.fd < 0) {
		if ((errno == EACCES || errno == EPERM) && !is_hidden(s, place)) {
			s->denied++;
			snprintf(s->denied_at, sizeof(s->denied_at), "%s/dpdk/%s", place, prefix);
		}
		return; /* socket of a dead process */
	}
	snprintf(t.prefix, sizeof(t.prefix), "%s", prefix);
	info = read_greeting(&t) == 0 ? tel_ask(&t, "/kvroute/info", err, sizeof(err)) : NULL;
	if (info == NULL)
		s->silent++;
	if (json_is_object(info)) { /* other DPDK programs answer null */
		append_name(s->names, sizeof(s->names), prefix);
		if (s->alive++ == 0) {
			*s->t = t;
			t = (struct tel){.fd = -1};
		}
	}
	json_decref(info);
	tel_close(&t);
}

static void try_place(struct search *s, const char *place, const char *prefix)
{
	char path[300];
	struct dirent *e;
	DIR *d;

	if (prefix != NULL) {
		if (s->alive == 0)
			try_router(s, place, prefix);
		return;
	}
	snprintf(path, sizeof(path), "%s/dpdk", place);
	d = opendir(path);
	if (d == NULL && errno == EACCES && !is_hidden(s, place)) {
		s->denied++;
		snprintf(s->denied_at, sizeof(s->denied_at), "%s", path);
	}
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			try_router(s, place, e->d_name);
	if (d != NULL)
		closedir(d);
}

static void find_routers(struct search *s, const struct tel_places *places, const char *prefix)
{
	s->t->fd = -1;
	for (size_t i = 0; places->at[i][0] != '\0'; i++)
		try_place(s, places->at[i], prefix);
}

static void join_names(char *list)
{
	for (; *list != '\0'; list++)
		if (*list == '\n')
			*list = ' ';
}

enum ctl_status tel_open(struct tel *t, const struct tel_places *places, const char *prefix,
			 char *err, size_t errlen)
{
	struct search s = {.t = t};
	const char *name = prefix != NULL ? prefix : "";

	memset(t, 0, sizeof(*t));
	find_routers(&s, places, prefix);
	if (s.alive > 1) {
		tel_close(t);
		join_names(s.names);
		snprintf(err, errlen,
			 "several routers run on this host: %s; choose one with --router NAME",
			 s.names);
		return CTL_SEVERAL;
	}
	if (s.alive == 1)
		return CTL_OK;
	if (s.silent != 0) {
		snprintf(err, errlen, "router %s does not answer", name);
		return CTL_DOWN;
	}
	if (s.denied != 0) {
		snprintf(err, errlen,
			 "%s: permission denied; run kvroute-ctl as root or as the router's user",
			 s.denied_at);
		return CTL_DENIED;
	}
	snprintf(err, errlen, "no router %s%sis running (searched %s/dpdk and similar folders)%s",
		 name, prefix != NULL ? " " : "", places->at[0], s.closed);
	return CTL_DOWN;
}

int tel_list_routers(const struct tel_places *places, char *text, size_t len)
{
	struct tel t;
	struct search s = {.t = &t};

	memset(&t, 0, sizeof(t));
	find_routers(&s, places, NULL);
	tel_close(&t);
	snprintf(text, len, "%s", s.names);
	return s.alive;
}

/* ---- commands ---- */

static json_t *fail_closed(struct tel *t, char *err, size_t errlen, const char *why)
{
	snprintf(err, errlen, "router %s: %s", t->prefix, why);
	tel_close(t);
	return NULL;
}

#define LONG_NUMBER 19u /* digits: may exceed jansson's signed 64-bit integers */

/* Copy @p text with quotes around long numbers and, if @p ascii, with '?' for bytes outside ASCII.
 * @return memory from malloc(), or NULL. */
static char *quote_numbers(const char *text, size_t len, bool ascii, size_t *n)
{
	/* Two quotes for at least LONG_NUMBER digits. */
	char *out = malloc(len + 2 * (len / LONG_NUMBER) + 1);
	bool quoted = false;
	size_t digits;

	*n = 0;
	for (size_t i = 0; out != NULL && i < len; i += digits) {
		const char c = text[i];

		if (quoted && c == '\\' && i + 1 < len)
			out[(*n)++] = text[i++]; /* an escaped quote does not end the string */
		else if (c == '"')
			quoted = !quoted;
		for (digits = 0;
		     !quoted && i + digits < len && isdigit((unsigned char)text[i + digits]);)
			digits++;
		if (digits >= LONG_NUMBER)
			out[(*n)++] = '"';
		digits += digits == 0;
		memcpy(out + *n, text + i, digits);
		if (ascii && (signed char)out[*n] < 0)
			out[*n] = '?';
		*n += digits;
		if (digits >= LONG_NUMBER)
			out[(*n)++] = '"';
	}
	return out;
}

/* Names from the network may be invalid UTF-8: then parse the text as ASCII. */
static json_t *parse_answer(const char *text, size_t len)
{
	json_t *all = NULL;

	for (int ascii = 0; ascii < 2 && all == NULL; ascii++) {
		size_t n;
		char *copy = quote_numbers(text, len, ascii, &n);

		all = copy != NULL ? json_loadb(copy, n, 0, NULL) : NULL;
		free(copy);
	}
	return all;
}

json_t *tel_ask(struct tel *t, const char *command, char *err, size_t errlen)
{
	char key[64];
	ssize_t n;
	json_t *all, *answer;

	if (t->fd < 0)
		return fail_closed(t, err, errlen, "not connected");
	if (send(t->fd, command, strlen(command), MSG_NOSIGNAL) < 0)
		return fail_closed(t, err, errlen, "the connection is closed");
	n = recv(t->fd, t->answer, t->max, 0);
	if (n <= 0)
		return fail_closed(
			t, err, errlen,
			n == 0 ? "connection closed by the router: it serves ten at a time, or is stopping"
			: errno == EAGAIN ? "no answer; the process may be stopped"
					  : strerror(errno));
	snprintf(key, sizeof(key), "%.*s", (int)strcspn(command, ","), command);
	all = parse_answer(t->answer, (size_t)n);
	answer = json_incref(json_object_get(all, key));
	json_decref(all);
	return answer != NULL ? answer
			      : fail_closed(t, err, errlen, "the answer is not valid JSON");
}

static void move_members(json_t *to, json_t *from)
{
	const char *key;
	json_t *value;

	json_object_foreach (from, key, value)
		json_object_set(to, key, value);
}

json_t *tel_ask_pages(struct tel *t, const char *command, const char *pages, char *err,
		      size_t errlen)
{
	json_t *all = tel_ask(t, command, err, errlen), *next;

	if (all == NULL || pages == NULL)
		return all;
	for (unsigned int i = 0; i < MAX_PAGES; i++) {
		char more[512];
		json_t *part;

		next = json_object_get(all, "next");
		if (!json_is_integer(next))
			break;
		snprintf(more, sizeof(more), "%s,%" JSON_INTEGER_FORMAT, command,
			 json_integer_value(next));
		part = tel_ask(t, more, err, errlen);
		if (part == NULL) {
			json_decref(all);
			return NULL;
		}
		json_object_del(all, "next");
		move_members(json_object_get(all, pages), json_object_get(part, pages));
		if (json_object_get(part, "next") != NULL)
			json_object_set(all, "next", json_object_get(part, "next"));
		json_decref(part);
	}
	return all;
}

bool tel_is_error(const json_t *answer)
{
	return json_is_string(json_object_get(answer, "error")) &&
	       json_object_get(answer, "message") != NULL;
}

static bool ends_with(const char *text, const char *with)
{
	const size_t n = strlen(text), m = strlen(with);

	return n >= m && strcmp(text + n - m, with) == 0;
}

int tel_copy_metrics(struct tel *t, FILE *out, char *err, size_t errlen)
{
	unsigned long lines = 0, bytes = 0;
	bool last = false;

	while (!last && bytes < MAX_METRICS) {
		char command[64];
		json_t *part;
		const char *text;
		size_t len;

		snprintf(command, sizeof(command), "/kvroute/metrics,%lu", lines);
		part = tel_ask(t, command, err, errlen);
		text = json_string_value(part);
		len = text != NULL ? strlen(text) : 0;
		if (len == 0) {
			if (part != NULL)
				snprintf(err, errlen, "router %s has no metrics", t->prefix);
			json_decref(part);
			return -1;
		}
		for (const char *p = text; *p != '\0'; p++)
			lines += *p == '\n';
		last = ends_with(text, "# EOF\n");
		fwrite(text, 1, len - (last ? strlen("# EOF\n") : 0), out);
		bytes += len;
		json_decref(part);
	}
	return last ? 0 : -1;
}
