-- Bindings belong to a tenant and app, so they are looked up across its users.

-- name: platform_binding_create!
INSERT INTO bindings
    (id, tenant_id, app_id, created_by, scopes, space_ids, space_names, policy, enabled, windowed, single_user_id, since,
    created_at, updated_at)
VALUES
    (:id, :tenant_id, :app_id, :created_by, :conversation_scope, :memory_space_ids, :memory_space_names,
    :extraction_policy, :enabled, :windowed, :single_user_id, :since, :created_at, :created_at);

-- name: platform_binding_get^
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;

-- name: platform_bindings_visible_to_user
-- Bindings that a user created or that may match a user. Those of other single users are not read: there may be many.
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND created_by = :user_id
UNION
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND single_user_id = :user_id
UNION
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND single_user_id IS NULL
ORDER BY id;

-- name: platform_bindings_matching_user
-- Bindings that may match a user. Those of other single users are not read: there may be many.
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND single_user_id = :user_id
UNION ALL
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND single_user_id IS NULL;

-- name: platform_bindings_dispatch_range^
-- The first event position that any binding needs, and whether any needs message events.
SELECT
    (SELECT MIN(since) FROM bindings) AS since,
    (SELECT COUNT(*) FROM (SELECT 1 FROM bindings WHERE windowed = 1 AND enabled = 1 LIMIT 1) AS found) AS windowed;

-- name: platform_binding_get_by_id^
SELECT {binding_columns}
FROM bindings
WHERE id = :id;

-- name: platform_bindings_all
SELECT {binding_columns}
FROM bindings
WHERE {tenant_app_filter}
ORDER BY id;

-- name: platform_binding_update!
UPDATE bindings
SET policy = :extraction_policy, enabled = :enabled, windowed = :windowed, since = COALESCE(CAST(:since AS BIGINT), since),
    updated_at = :updated_at
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;

-- name: platform_binding_delete!
DELETE FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;
