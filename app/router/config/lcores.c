/* SPDX-License-Identifier: BSD-3-Clause */
/* Parser of the lcore map. */
#include "config/lcores.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/config.h"
#include "state/conf.h"

/* Destination of error messages. */
struct why {
	char *text;
	size_t len;
};

static int report_error(const struct why *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int report_error(const struct why *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->text, w->len, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* "CPU", "FIRST-LAST" or "ID@CPU". */
struct item {
	bool named; /* it has an ID */
	uint32_t id, first, last;
};

/* Parse a number below @limit at *text and advance. */
static bool parse_number(const char **text, uint32_t limit, uint32_t *n)
{
	unsigned long value;
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	value = strtoul(*text, &end, 10);
	*text = end;
	*n = (uint32_t)value;
	return value < limit;
}

/* Parse an item at *text and advance. */
static bool parse_item(const char **text, struct item *i)
{
	*i = (struct item){.named = false};
	if (!parse_number(text, CPU_SETSIZE, &i->first))
		return false;
	i->last = i->first;
	if (**text == '@') {
		++*text;
		i->named = true;
		i->id = i->first;
		if (!parse_number(text, CPU_SETSIZE, &i->first))
			return false;
		i->last = i->first;
	} else if (**text == '-') {
		++*text;
		if (!parse_number(text, CPU_SETSIZE, &i->last))
			return false;
	}
	return i->first <= i->last;
}

/* The first lcore on @cpu; n_lcores: none. */
static uint32_t lcore_of(const struct kvr_router_conf *conf, uint32_t cpu)
{
	uint32_t i = 0;

	while (i < conf->n_lcores && conf->cpu[i] != cpu)
		i++;
	return i;
}

/* The CPUs of @set as "0-3,6". */
static const char *cpus_text(const cpu_set_t *set, char *out, size_t len)
{
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t first = 0, last; first < CPU_SETSIZE && n < len; first = last + 1) {
		last = first;
		if (!CPU_ISSET(first, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		n += (size_t)snprintf(out + n, len - n, "%s%u", n != 0 ? "," : "", first);
		if (last > first && n < len)
			n += (size_t)snprintf(out + n, len - n, "-%u", last);
	}
	return out;
}

static int add_lcore(struct kvr_router_conf *conf, uint32_t cpu, const cpu_set_t *may,
		     const struct why *w)
{
	char text[96];

	if (may != NULL && !CPU_ISSET(cpu, may))
		return report_error(w, "CPU %u is not available to this process, allowed: %s", cpu,
				    cpus_text(may, text, sizeof(text)));
	if (conf->n_lcores == KVR_ROUTER_MAX_LCORES)
		return report_error(w, "more than %u polling lcores", KVR_ROUTER_MAX_LCORES);
	conf->cpu[conf->n_lcores++] = cpu;
	return 0;
}

static int wrong_id(const struct kvr_router_conf *conf, const struct item *i, const struct why *w)
{
	return report_error(w, "got \"%u@%u\", allowed: IDs in order, the next is %u", i->id,
			    i->first, conf->n_lcores);
}

int lcores_ingress(struct kvr_router_conf *conf, const char *text, const cpu_set_t *may, char *why,
		   size_t len)
{
	const struct why w = {why, len};
	const char *at = text;
	struct item i;
	int rc;

	for (;; at++) {
		if (!parse_item(&at, &i) || (*at != ',' && *at != '\0'))
			return report_error(
				&w, "got \"%s\", allowed: CPUs like 0 or 0,2-3, or 0@0,1@0", text);
		if (i.named && i.id != conf->n_lcores)
			return wrong_id(conf, &i, &w);
		for (uint32_t cpu = i.first; cpu <= i.last; cpu++) {
			if (!i.named && lcore_of(conf, cpu) < conf->n_lcores)
				return report_error(
					&w,
					"\"%s\" names CPU %u twice, allowed: once, or lcores with IDs that share it, like 0@%u,1@%u",
					text, cpu, cpu, cpu);
			rc = add_lcore(conf, cpu, may, &w);
			if (rc < 0)
				return rc;
		}
		if (*at == '\0')
			break;
	}
	conf->n_ingress = conf->n_lcores;
	return 0;
}

int lcores_role(struct kvr_router_conf *conf, const char *text, const cpu_set_t *may,
		uint32_t *lcore, char *why, size_t len)
{
	const struct why w = {why, len};
	const char *at = text;
	struct item i;

	*lcore = 0;
	if (*text == '\0')
		return 0;
	if (!parse_item(&at, &i) || *at != '\0' || i.first != i.last)
		return report_error(
			&w, "got \"%s\", allowed: a CPU like 2, or a polling lcore on it like 1@2",
			text);
	*lcore = i.named ? i.id : lcore_of(conf, i.first);
	if (*lcore > conf->n_lcores)
		return wrong_id(conf, &i, &w);
	if (*lcore == conf->n_lcores)
		return add_lcore(conf, i.first, may, &w);
	return conf->cpu[*lcore] == i.first
		       ? 0
		       : report_error(&w, "got \"%s\", but lcore %u is on CPU %u", text, *lcore,
				      conf->cpu[*lcore]);
}

int lcores_idle(const struct kvr_router_conf *conf, char *why, size_t len)
{
	if (conf->opt.idle != IDLE_POLL)
		return 0;
	for (uint32_t i = 0; i < conf->n_lcores; i++) {
		const uint32_t first = lcore_of(conf, conf->cpu[i]);

		if (first != i)
			return report_error(
				&(struct why){why, len},
				"got \"poll\", but lcores %u and %u share CPU %u and would block each other for whole time slices; allowed: sleep, interrupt, or one CPU per lcore",
				first, i, conf->cpu[i]);
	}
	return 0;
}
