-- Bindings are those of a tenant and app, so they are looked up across its users.

-- name: platform_binding_create!
INSERT INTO bindings
    (id, tenant_id, app_id, created_by, scopes, space_ids, space_names, policy, enabled, since, created_at, updated_at)
VALUES
    (:id, :tenant_id, :app_id, :created_by, :scopes, :space_ids, :space_names, :policy, :enabled, :since, :now, :now);

-- name: platform_binding_get^
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;

-- name: platform_bindings_of_app
SELECT {binding_columns}
FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id
ORDER BY id;

-- name: platform_bindings
SELECT {binding_columns}
FROM bindings
ORDER BY id;

-- name: platform_binding_update!
UPDATE bindings
SET policy = :policy, enabled = :enabled, updated_at = :now
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;

-- name: platform_binding_delete!
DELETE FROM bindings
WHERE tenant_id = :tenant_id AND app_id = :app_id AND id = :id;
