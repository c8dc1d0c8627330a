/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at /health and /metrics, one of each at a time. */
#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_MOST (4u << 20)

static size_t on_page(char *data, size_t size, size_t count, void *user)
{
	const size_t n = size * count;
	struct app_probe *p = user;
	char *larger;

	if (p->len + n > PAGE_MOST)
		return 0;
	larger = realloc(p->page, p->len + n);
	if (larger == NULL)
		return 0;
	p->page = larger;
	memcpy(p->page + p->len, data, n);
	p->len += n;
	return n;
}

static void begin(struct app *a, struct app_probe *p)
{
	char url[512];

	p->kind = APP_PROBE;
	p->len = 0;
	if (p->easy == NULL)
		p->easy = curl_easy_init();
	if (p->easy == NULL)
		return;
	snprintf(url, sizeof(url), "%s%s", a->o.engine, p->path);
	curl_easy_setopt(p->easy, CURLOPT_URL, url);
	curl_easy_setopt(p->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(p->easy, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(p->easy, CURLOPT_WRITEFUNCTION, on_page);
	curl_easy_setopt(p->easy, CURLOPT_WRITEDATA, p);
	curl_easy_setopt(p->easy, CURLOPT_PRIVATE, (char *)p);
	curl_easy_setopt(p->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(p->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)a->o.connect_ms);
	curl_easy_setopt(p->easy, CURLOPT_TIMEOUT_MS, 5000L);
	p->busy = curl_multi_add_handle(a->multi, p->easy) == CURLM_OK;
}

void app_probe_turn(struct app *a)
{
	if (a->state != APP_WAITING && a->state != APP_SERVING && a->state != APP_DRAINING)
		return;
	if (!a->health.busy && a->now_us >= a->health.due_us)
		begin(a, &a->health);
	if (!a->metrics.busy && a->now_us >= a->metrics.due_us && a->state != APP_WAITING)
		begin(a, &a->metrics);
}

uint64_t app_probe_due_us(const struct app *a)
{
	uint64_t due = a->health.busy ? UINT64_MAX : a->health.due_us;

	if (!a->metrics.busy && a->state != APP_WAITING && a->metrics.due_us < due)
		due = a->metrics.due_us;
	return due;
}

static void health_ended(struct app *a, bool fine)
{
	a->health.due_us = a->now_us + a->o.health_ms * UINT64_C(1000);
	if (fine) {
		a->health_failures = 0;
		if (a->state == APP_WAITING && !a->metrics.busy)
			begin(a, &a->metrics);
		return;
	}
	kvr_cell_add(&a->st.health_failed, 1);
	a->health_failures++;
	if (a->state == APP_WAITING)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.engine),
			"waiting for the engine's /health");
	if (a->state == APP_SERVING && a->health_failures >= 3)
		app_engine_lost(a);
}

static void metrics_ended(struct app *a, bool fine)
{
	a->metrics.due_us = a->now_us + a->o.load_ms * UINT64_C(1000);
	if (fine)
		agent_prom_read(&a->prom, a->metrics.page, a->metrics.len);
	if (!fine || a->prom.samples == 0) {
		kvr_cell_add(&a->st.metrics_failed, 1);
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"%s/metrics says nothing about load: own counts are reported", a->o.engine);
		memset(a->prom.rank, 0, sizeof(a->prom.rank));
	}
	if (a->state == APP_WAITING)
		app_engine_fine(a);
	else if (a->agent != NULL)
		app_load_known(a);
}

void app_probe_ended(struct app *a, struct app_probe *p, CURLcode result)
{
	long status = 0;

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_multi_remove_handle(a->multi, p->easy);
	p->busy = false;
	if (p == &a->health)
		health_ended(a, result == CURLE_OK && status == 200);
	else
		metrics_ended(a, result == CURLE_OK && status == 200);
}

void app_probe_fini(struct app_probe *p)
{
	if (p->easy != NULL)
		curl_easy_cleanup(p->easy);
	free(p->page);
}
