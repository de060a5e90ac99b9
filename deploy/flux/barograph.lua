-- For Flux's job shell: put it into /etc/flux/shell/lua.d. It adds to the environment of tasks what task-begin prints.
local hooks = "/etc/barograph/hooks"
local passed = {
    "LD_PRELOAD", "BAROGRAPH_DISABLE", "BAROGRAPH_RANKS", "BAROGRAPH_RING_DIR", "BAROGRAPH_FEATURES", "FLUX_JOB_NNODES",
}
local variables -- asked for once: the tasks of a job differ in their numbers alone

local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function first_line(command)
    local pipe = io.popen(command)
    local line = pipe and pipe:read("l") or ""
    if pipe then pipe:close() end
    return line
end

-- The prefix of an id is a letter beyond ASCII where the locale has it, which need not be the prolog's.
local function name()
    return "flux-" .. task.getenv("FLUX_JOB_ID"):gsub("^ƒ", "f") .. "@" .. first_line("/bin/uname -n")
end

local function ask()
    local words = { "/usr/bin/env" }
    for _, variable in ipairs(passed) do
        local value = task.getenv(variable)
        if value then words[#words + 1] = variable .. "=" .. quoted(value) end
    end
    local call = { "/bin/sh", hooks .. "/bounded", "task-begin", quoted(name()), first_line("/usr/bin/id -u"), "0", "0" }
    for line in io.popen(table.concat(words, " ") .. " " .. table.concat(call, " ") .. " 2> /dev/null"):lines() do
        local variable, value = line:match("^([A-Z_]+)=(.*)$")
        if variable then variables[variable] = value end
    end
end

plugin.register {
    name = "barograph",
    handlers = {
        {
            -- Not shell.init: only newer shells know the job's own id by then, others that of a job around it.
            topic = "task.init",
            fn = function()
                pcall(function()
                    if not variables then
                        variables = {}
                        ask()
                    end
                    for variable, value in pairs(variables) do task.setenv(variable, value) end
                end)
            end,
        },
    },
}
